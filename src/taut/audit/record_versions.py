"""Records of other versions of taut: the error says how to get one that can be read.

A record holds sums over rows. What a version began to tell apart, such as rows of few keys, is not
in the records of those before it, so that none of them is read as if it were.
"""

from __future__ import annotations

import shlex
from typing import Any

import taut
from taut._base.settings import AuditSettings


def check_version(data: dict[str, Any], version: int) -> None:
    """Raise a ValueError that says what to do, unless a record is of this version."""
    found: int = data["taut_audit"]
    if found > version:
        raise ValueError(
            f"{_written(data)}, and this taut ({taut.__version__}) reads version {version}: "
            "install a newer taut, or run the audit again"
        )
    if found < version:
        raise ValueError(
            f"{_written(data)}, and this taut ({taut.__version__}) reads version {version}: "
            f"run the audit again{_command(data)}"
        )


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
