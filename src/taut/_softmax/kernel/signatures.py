"""The kernels, each compiled for the types that it is called with.

Importing this module imports numba; the first call of each compiles (seconds), and later runs load
the compiled code from numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import types

from taut._base.compiled import compiled
from taut._softmax.kernel.along_rows import constants_along_rows
from taut._softmax.kernel.arithmetic import LN2, limits
from taut._softmax.kernel.careful_gradients import fill_careful_gradients
from taut._softmax.kernel.gradients import fill_gradients
from taut._softmax.kernel.lower_sides import fill_lower_sides
from taut._softmax.kernel.side_by_side import constants_side_by_side

SHORT = 128  # entries of rows that are worked side by side; see ERROR in error.py


@lru_cache
def constants_compiled(char: str) -> Callable[..., int]:
    """The kernel for one precision, compiled or loaded from numba's cache on first use."""
    element = types.float32 if char == "f" else types.float64
    # Declared read-only, so that arrays that are (JAX's) need no second compilation.
    rows = types.Array(element, 2, "C", readonly=True)
    number = types.float64
    signature = types.int64(
        rows,
        types.int64,
        number,
        number,
        number,
        number,
        types.Array(element, 2, "C"),
        types.Array(number, 2, "C"),
    )
    return compiled(fill_constants, signature)


@lru_cache
def gradients_compiled(char: str) -> Callable[..., int]:
    """The same for the derivative."""
    element = types.float32 if char == "f" else types.float64
    rows = types.Array(element, 2, "C", readonly=True)
    number, line = types.float64, types.Array(element, 1, "C", readonly=True)
    found, left = types.Array(number, 2, "C"), types.Array(types.int64, 1, "C")
    signature = types.int64(rows, found, line, line, number, types.Array(element, 2, "C"), left)
    return compiled(fill_gradients, signature)


@lru_cache
def careful_gradients_compiled(char: str) -> Callable[..., int]:
    """The same for rows that need more care."""
    element = types.float32 if char == "f" else types.float64
    rows = types.Array(element, 2, "C", readonly=True)
    line, left = types.Array(element, 1, "C", readonly=True), types.Array(types.int64, 1, "C")
    signature = types.int64(rows, left, line, line, types.float64, types.Array(element, 2, "C"))
    return compiled(fill_careful_gradients, signature)


@lru_cache
def lower_sides_compiled(char: str) -> Callable[..., None]:
    """The same for lower sides of other norms."""
    element = types.float32 if char == "f" else types.float64
    rows = types.Array(element, 2, "C", readonly=True)
    number = types.float64
    line, table = types.Array(number, 1, "C"), types.Array(number, 2, "C")
    return compiled(fill_lower_sides, types.void(rows, line, number, number, number, table, line))


def fill_constants(
    x: Any,
    first: int,
    scale: float,
    ceiling: float,
    relative: float,
    absolute: float,
    out: Any,
    found: Any,
) -> int:
    """Fill the columns of ``out`` from ``first`` on from the rows of ``x`` (compiled).

    Returns the number of rows that were not solved.
    """
    _, _, _, ln2_rest = limits(x.dtype.type(0))
    # λ = λ_high (1 + q): q λ_high d is q k ln 2 but for q r, |r| < 0.35, so ln2_low can carry it.
    scale_high = x.dtype.type(scale)
    ln2_low = x.dtype.type(ln2_rest - (scale - scale_high) / scale_high * LN2)
    scales, error = (scale, scale_high, ln2_low), (relative, absolute)
    if x.shape[1] <= SHORT:
        wrong = constants_side_by_side(x, first, scales, ceiling, error, out, found)
    else:
        wrong = constants_along_rows(x, first, scales, ceiling, error, out, found)
    return int(wrong)
