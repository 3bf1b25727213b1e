"""Records of other versions of taut: brought up to date where that is possible.

Where it is not, the error says which versions are read and how the audit is run again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import taut
from taut._base.settings import AuditSettings


def upgraded(data: dict[str, Any], version: int) -> dict[str, Any]:
    """A record as this version writes it; a ValueError says why it cannot be one."""
    found: int = data["taut_audit"]
    if found > version:
        raise ValueError(
            f"{_written(data)}, and this taut ({taut.__version__}) reads version {version} and "
            "older ones: install a newer taut, or run the audit again"
        )
    if any(number not in UPGRADES for number in range(found, version)):
        raise ValueError(
            f"{_written(data)}, and this taut ({taut.__version__}) reads version {version}"
            f"{_also_read(version)}: run the audit again{_command(data)}"
        )
    for number in range(found, version):
        data = {**UPGRADES[number](data), "taut_audit": number + 1}
    return data


def _also_read(version: int) -> str:
    older = [number for number in UPGRADES if number < version]
    return f" and versions from {min(older)} on" if older else ""


def _written(data: dict[str, Any]) -> str:
    by = _inside(data, "versions", "taut")
    number = str(data["taut_audit"])
    number = number if len(number) < 20 else f"with {len(number)} digits"
    return f"a record of version {number}" + (f", which taut {by} wrote" if by else "")


def _inside(data: dict[str, Any], group: str, key: str) -> str:
    """A word of a record that nobody has checked yet."""
    inside = data.get(group)
    word = inside.get(key) if isinstance(inside, dict) else None
    return word if isinstance(word, str) and len(word) < 200 else ""


# Settings that are options of the same name; others are written in another way.
_OPTIONS = ("threshold", "seed", "batch_size", "max_length", "limit", "tokenizer", "dtype")


def _command(data: dict[str, Any]) -> str:
    """The command that makes the record anew, where model and data have names."""
    name, source = _inside(data, "model", "name"), _inside(data, "data", "source")
    if not name or not source or ", " in source or _inside(data, "data", "kind") == "batches":
        return ""
    words = ["taut", "audit", name, "--data", source]
    given, usual = data.get("settings"), AuditSettings().to_dict()
    given = given if isinstance(given, dict) else {}
    for key in _OPTIONS:
        value = given.get(key, usual[key])
        if value != usual[key] and isinstance(value, (str, int, float)):
            words += [f"--{key.replace('_', '-')}", str(value)[:200]]
    return f": {shlex.join(words)}"


def _from_5(data: dict[str, Any]) -> dict[str, Any]:
    """Sums were rounded, so that nothing is known of their rests; there were no shards."""
    layers = data.get("layers")
    logits = data.get("logits")
    return {
        **data,
        "shard": None,
        "layers": [_with_rests(each) for each in layers] if isinstance(layers, list) else layers,
        "logits": _with_rests(logits),
    }


def _with_rests(layer: Any) -> Any:
    if not isinstance(layer, dict) or not isinstance(layer.get("sums"), dict):
        return layer  # what is wrong with it is said when it is read
    grid = layer.get("grid")
    grid = {**grid, "rests": []} if isinstance(grid, dict) else grid
    return {**layer, "rests": {key: [] for key in layer["sums"]}, "grid": grid}


# From each version to the next. A version whose numbers this one lacks has none.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {5: _from_5}
