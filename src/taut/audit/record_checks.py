"""Checks of what is read from a record: a wrong type or size is a ValueError that says where.

Nothing is made larger here than it is in the file.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from taut._base.json_files import read_json, unsealed
from taut.audit.record_versions import check_version
from taut.audit.sample_spans import Span, checked
from taut.audit.sample_spans import count as counted

Array = np.ndarray[Any, np.dtype[Any]]
MOST = 1 << 53  # of a count
DEEPEST = 20  # lists and objects in each other, in what is said about model, data and settings


def read_record(file: Path, version: int) -> dict[str, Any]:
    """What the file of a record holds, as it was written; a ValueError names the file."""
    if not file.exists():
        raise ValueError(f"there is no file {file}")
    try:
        data = read_json(file)
    except ValueError as error:
        raise ValueError(f"{file} is not a record of an audit: {error}") from None
    if not isinstance(data, dict) or type(data.get("taut_audit")) is not int:
        raise ValueError(f"{file} is not a record of an audit")
    try:
        check_version(data, version)
    except ValueError as error:
        raise ValueError(f"{file} is {error}") from None
    try:
        found = unsealed(data)
    except RecursionError:
        found = None
    if found is None:
        raise ValueError(
            f"{file} was damaged, or edited by hand: its checksum is not that of its numbers. Take "
            "another copy of it, or run the audit again"
        )
    return found


def part(data: Any, key: str, kind: type, what: str = "the record") -> Any:
    """A part of an object, of the right type."""
    if not isinstance(data, dict):
        raise ValueError(f"{what} must be an object")
    if key not in data:
        raise ValueError(f"{what} has no {key!r}")
    value = data[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{key!r} of {what} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def count(data: Any, key: str, what: str = "the record", least: int = 0) -> int:
    """A whole number that is not negative."""
    value: int = part(data, key, int, what)
    if not least <= value <= MOST:
        raise ValueError(f"{key!r} of {what} is {_short(value)}")
    return value


def pair(data: Any, key: str, what: str) -> tuple[int, int]:
    """Two whole numbers that are not negative."""
    first, second = integers(part(data, key, list, what), (2,), f"{key!r} of {what}").tolist()
    return first, second


def spans(data: Any) -> list[Span]:
    """The samples that a record holds, as many as it says."""
    given = part(data, "seen", list)
    rows = integers(given, (len(given), 2), "'seen' of the record").tolist()
    found = checked(rows)
    if counted(found) != count(data, "samples"):
        raise ValueError(f"it holds {data['samples']} samples, and {counted(found)} by number")
    return found


def integers(value: Any, shape: tuple[int, ...], what: str, least: int = 0) -> Array:
    """Lists of whole numbers of a shape."""
    for row in _rows(value, shape, what):
        if not set(map(type, row)) <= {int} or (row and not least <= min(row) <= max(row) <= MOST):
            raise ValueError(f"{what} must hold counts")
    return np.array(value, dtype=np.int64).reshape(shape)


def numbers(value: Any, shape: tuple[int, ...], what: str, missing: float = math.nan) -> Array:
    """Lists of finite numbers of a shape; null stands for what is missing."""
    kinds, rows = {int, float, type(None)}, _rows(value, shape, what)
    for row in rows:
        if not set(map(type, row)) <= kinds or not all(v is None or abs(v) <= 1.7e308 for v in row):
            raise ValueError(f"{what} must hold finite numbers")
    filled = [[missing if v is None else float(v) for v in row] for row in rows]
    return np.array(filled, dtype=np.float64).reshape(shape)


def finite(values: Array) -> Any:
    """Lists of the numbers, with null for what is not finite: JSON has no word for it."""
    return np.where(np.isfinite(values), values, None).tolist()  # type: ignore[call-overload]


def _rows(value: Any, shape: tuple[int, ...], what: str) -> list[list[Any]]:
    rows = [value] if len(shape) == 1 else value
    if not isinstance(rows, list) or (len(shape) == 2 and len(rows) != shape[0]):
        raise ValueError(f"{what} must be {shape[0]} lists")
    for row in rows:
        if not isinstance(row, list) or len(row) != shape[-1]:
            raise ValueError(f"{what} must have {shape[-1]} numbers")
    return rows


def words(value: Any, size: int | None = None) -> Any:
    """A list or an object of strings."""
    inside = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (list, dict)) or not set(map(type, inside)) <= {str}:
        raise ValueError("this should be text, and is something else")
    if size is not None and len(value) != size:
        raise ValueError(f"there should be {size} words, not {len(value)}")
    return value


# What is printed in a certain way must be of a certain type.
_TYPES = {"name": (str,), "class": (str,), "logits": (int, float, type(None))}


def facts(data: Any, key: str) -> dict[str, Any]:
    """Names and values, as deep as they can be shown."""
    value: dict[str, Any] = part(data, key, dict)
    _shallow(value, key, DEEPEST)
    for name, kinds in _TYPES.items():
        if name in value and type(value[name]) not in kinds:
            raise ValueError(f"{name!r} of {key!r} is a {type(value[name]).__name__}")
    return value


def _shallow(value: Any, what: str, left: int) -> None:
    if left == 0:
        raise ValueError(f"{what!r} is nested too deeply")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what!r} holds {value}, which is not a number")
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inside:
        _shallow(item, what, left - 1)


def _short(value: int) -> str:
    text = str(value)
    return text if len(text) < 20 else f"a number of {len(text)} digits"
