"""JSON files: our own carry a checksum, and those of others are read with care."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

SEAL = "checksum of this file"
LARGEST = 256 << 20  # bytes of a file; records of the largest models have some 100 million
PARTS = 4_000_000  # lists and objects in a file: each costs far more memory than its two brackets


def plain(value: Any) -> Any:
    """What JSON can hold; infinite numbers and NaN, which it has not, are written as words."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def sealed(data: dict[str, Any]) -> str:
    """JSON in one line, sorted by key, that begins with the checksum of everything else in it."""
    body = _canonical(data)
    return f'{{"{SEAL}":"{_hashed(body)}",{body[1:]}'


def checksum(data: dict[str, Any]) -> str:
    """That of everything in an object but a checksum that stands there."""
    return _hashed(_canonical({key: value for key, value in data.items() if key != SEAL}))


def unsealed(data: dict[str, Any]) -> dict[str, Any] | None:
    """What :func:`sealed` wrote, without its checksum; None where that is missing or wrong."""
    if data.get(SEAL) != checksum(data):
        return None
    return {key: value for key, value in data.items() if key != SEAL}


def _canonical(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_json(file: Path) -> Any:
    """What a JSON file holds; a ValueError without the file's name says why it cannot be read."""
    if file.exists() and not file.is_file():
        raise ValueError("it is not a file")
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST >> 20} MB")
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read it: {error.strerror}") from None
    if data.count(b"[") + data.count(b"{") > PARTS:
        raise ValueError(f"it has more than {PARTS:,} lists and objects")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=without_repeats)
    except UnicodeDecodeError:
        raise ValueError("not JSON: it is not valid UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except (RecursionError, MemoryError):
        raise ValueError("its lists and objects are nested too deeply") from None


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; json itself would drop all but the last of equal keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        known: set[str] = set()
        key = next(key for key, _ in pairs if key in known or known.add(key))  # type: ignore[func-returns-value]
        twice = json.dumps(key, ensure_ascii=False)
        short = twice if len(twice) <= 40 else twice[:37] + "..."
        raise ValueError(f"the key {short} stands twice in one object")
    return found
