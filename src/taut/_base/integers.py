"""Integers as floats, exactly or not at all: rounding logits changes every constant."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from taut._base.array import Array, known, namespace, wide_eps

_HELP = (
    "subtract a constant from each row first if they are logits (softmax does not change), or "
    "round them to floats yourself"
)


def floats_of(x: Array, kind: str, *, name: str) -> Array:
    """An array of the integer dtype ``kind`` as floats; what they do not hold exactly is refused.

    Where values are not known because they are being traced, only dtypes that always fit pass.
    """
    xp = namespace(x)
    single = wide_eps(x) > 1e-10
    target = xp.float32 if single else xp.float64
    found = xp.astype(x, target)
    bits = int(kind.removeprefix("u").removeprefix("int"))
    if bits <= (16 if single else 32):
        return found
    # Back again; what rounded up to beyond the integers' range would not survive that.
    inside = found < 2.0 ** (bits if kind.startswith("u") else bits - 1)
    same = inside & (xp.astype(xp.where(inside, found, xp.zeros_like(found)), x.dtype) == x)
    width = "float32" if single else "float64"
    if known(xp.any(~same)):
        raise ValueError(f"{name} holds integers that {width} cannot hold exactly: {_HELP}")
    if not known(xp.all(same)):
        raise TypeError(
            f"{name} holds {kind}, which {width} need not hold exactly, and is being traced, so "
            "that its values cannot be checked: convert it to floats before"
        )
    return found


def array_of(numbers: Any, *, name: str) -> np.ndarray[Any, Any]:
    """A NumPy array of (nested lists of) Python numbers, of which none was rounded."""
    try:
        found = np.asarray(numbers)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from None
    mixed = found.dtype.kind == "f" and bool(np.any(np.abs(found) >= 2.0**53))
    if not mixed and found.dtype != object:
        return found
    # NumPy rounds integers beside floats, and leaves those beyond 64 bits as objects.
    given = np.asarray(numbers, dtype=object)
    if found.dtype == object and not all(_is_integer(value) for value in given.flat):
        return found
    refuse_rounded(given, name=name)
    return given.astype(np.float64)


def refuse_rounded(objects: np.ndarray[Any, Any], *, name: str) -> None:
    """Refuse Python integers that float64 would round; other numbers may be."""
    if not all(is_exact(value) for value in objects.flat if _is_integer(value)):
        raise ValueError(f"{name} holds integers that float64 cannot hold exactly: {_HELP}")


def is_exact(value: Any) -> bool:
    """Whether a number is what ``float`` makes of it."""
    try:
        rounded = float(value)
        return int(rounded) == operator.index(value) if _is_integer(value) else rounded == value
    except OverflowError:
        return False


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, (bool, np.bool_))
