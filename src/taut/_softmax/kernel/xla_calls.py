"""The compiled constants and their derivatives as custom calls of XLA, for JAX on CPUs.

NaN and +inf cannot be refused here: such a row gives NaN throughout. Rows whose logits are too
coarse for the kernel are measured from their largest logit, which is exact for all entries that
have any weight.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from taut._base.compiled import compiled_callback
from taut._base.compiled_links import call_of, link
from taut._base.compiled_memory import plain_arithmetic, set_arithmetic
from taut._base.xla_frame import (
    argument,
    asks_to_execute,
    data,
    length,
    number,
    result,
    rows_before,
)
from taut._softmax.kernel.driver import (
    careful_gradients_compiled,
    constants_compiled,
    gradients_compiled,
)
from taut._softmax.kernel.found import FOUND

LINES = 6
# Logits are coarse if their unit in the last place in float64, times λ, exceeds this. Whatever has
# a weight is then so near the largest that the difference is exact in either precision.
COARSE = 1e-9


@intrinsic
def _constants(_context: Any, arguments: Any) -> Any:
    """``fill_constants`` of a tuple of its arguments."""
    return call_of(*_kernels(_char(arguments[0]))[0], arguments)


@intrinsic
def _gradients(_context: Any, arguments: Any) -> Any:
    """``fill_gradients`` of a tuple of its arguments."""
    return call_of(*_kernels(_char(arguments[0]))[1], arguments)


@intrinsic
def _careful_gradients(_context: Any, arguments: Any) -> Any:
    """``fill_careful_gradients`` of a tuple of its arguments."""
    return call_of(*_kernels(_char(arguments[0]))[2], arguments)


def _kernels(char: str) -> list[tuple[str, Any]]:
    """The kernels, the very code that is called from Python, and the names to find them by."""
    return [
        (f"taut_constants_{char}", constants_compiled(char)),
        (f"taut_gradients_{char}", gradients_compiled(char)),
        (f"taut_careful_gradients_{char}", careful_gradients_compiled(char)),
    ]


def _char(x: Any) -> str:
    return "f" if x.dtype == types.float32 else "d"


@lru_cache
def handlers(char: str) -> tuple[Any, Any]:
    """The handlers of constants and of gradients for one precision, compiled on first use."""
    both = (
        (constants_of_float32, gradients_of_float32)
        if char == "f"
        else (constants_of_float64, gradients_of_float64)
    )
    for symbol, kernel in _kernels(char):
        link(symbol, kernel)
    signature = types.intp(types.intp)
    return compiled_callback(both[0], signature), compiled_callback(both[1], signature)


def constants_of_float32(frame: Any) -> Any:
    if asks_to_execute(frame):
        _answer_constants(frame, np.float32)
    return 0


def constants_of_float64(frame: Any) -> Any:
    if asks_to_execute(frame):
        _answer_constants(frame, np.float64)
    return 0


def gradients_of_float32(frame: Any) -> Any:
    if asks_to_execute(frame):
        _answer_gradients(frame, np.float32)
    return 0


def gradients_of_float64(frame: Any) -> Any:
    if asks_to_execute(frame):
        _answer_gradients(frame, np.float64)
    return 0


@njit(error_model="numpy")
def _answer_constants(frame: Any, kind: Any) -> None:
    """From logits to lower, value and upper of the two constants, and what else is to be known.

    That is how far rounding may have gone, relatively, and what derivatives need of each row.

    The numbers are λ, λ/2 rounded up, and how far rounding may have gone, relative and absolute.
    """
    logits, kept = argument(frame, 0), result(frame, LINES + 1)
    n, rows = length(logits, 0), rows_before(logits, 1)
    # The words of ``found`` are pairs of 32 bits, as float64 may be switched off in JAX.
    columns = rows_before(kept, 0) // (2 * FOUND)
    x = carray(data(logits), (rows, n), kind)
    found = carray(data(kept), (FOUND, columns), np.float64)
    for line in range(LINES + 1):  # should there be no memory for the work
        carray(data(result(frame, line)), (rows,), kind)[:] = np.nan
    out = np.full((LINES, rows), np.nan, x.dtype)
    modes = plain_arithmetic()
    scale, ceiling = number(frame, 0), number(frame, 1)
    error = (number(frame, 2), number(frame, 3))
    if _constants((x, 0, scale, ceiling, error[0], error[1], out, found)) != 0:
        _solve_the_rest(x, scale, ceiling, error, out)
    _leave_subnormals(out)
    set_arithmetic(modes)
    for line in range(LINES):
        carray(data(result(frame, line)), (rows,), kind)[:] = out[line]
    carray(data(result(frame, LINES)), (rows,), kind)[:] = x.dtype.type(error[0])


@njit(error_model="numpy")
def _solve_the_rest(x: Any, scale: float, ceiling: float, error: Any, out: Any) -> None:
    """The rows that have no value yet: NaN throughout, or moved so that the kernel can do them."""
    moved, nothing = np.empty((1, x.shape[1]), x.dtype), np.empty((FOUND, 0))
    for row in range(len(x)):
        if not (np.isnan(out[1, row]) or np.isnan(out[4, row])):
            continue
        top = _top(x, row)
        if np.isfinite(top) and _coarse(top, scale):
            _measure_from(top, x, row, moved)
            _constants((moved, row, scale, ceiling, error[0], error[1], out, nothing))
        else:
            out[:, row] = np.nan


@njit(error_model="numpy")
def _leave_subnormals(out: Any) -> None:
    """Sides that stay sides where a subnormal number is read as 0."""
    normal = np.finfo(out.dtype).tiny
    for lower in (0, 3):
        for row in range(out.shape[1]):
            if out[lower, row] < normal:
                out[lower, row] = 0
            if out[lower + 2, row] < normal:
                out[lower + 2, row] = normal


@njit(error_model="numpy")
def _answer_gradients(frame: Any, kind: Any) -> None:
    """From a weight for each constant, logits and what was found to the gradient of their sum."""
    logits = argument(frame, 2)
    n, rows = length(logits, 0), rows_before(logits, 1)
    x, out = carray(data(logits), (rows, n), kind), carray(data(result(frame, 0)), (rows, n), kind)
    found = carray(data(argument(frame, 3)), (FOUND, rows), np.float64)
    one = carray(data(argument(frame, 0)), (rows,), kind)
    two = carray(data(argument(frame, 1)), (rows,), kind)
    scale = number(frame, 0)
    out[:] = np.nan  # should there be no memory for the work
    left = np.empty(rows, np.int64)
    modes = plain_arithmetic()
    count = _gradients((x, found, one, two, scale, out, left))
    if count > 0:
        _treat_the_rest(x, left[:count], one, two, scale, out)
    set_arithmetic(modes)


@njit(error_model="numpy")
def _treat_the_rest(x: Any, left: Any, one: Any, two: Any, scale: float, out: Any) -> None:
    """The rows that are left, with care; NaN throughout where an entry is NaN or +inf."""
    moved, only = np.empty((1, x.shape[1]), x.dtype), np.zeros(1, np.int64)
    careful = 0
    for row in left:
        top = _top(x, row)
        if np.isnan(top) or top == np.inf:
            out[row, :] = np.nan
        elif np.isfinite(top) and _coarse(top, scale):
            _measure_from(top, x, row, moved)
            place = out[row : row + 1]
            first, second = one[row : row + 1], two[row : row + 1]
            _careful_gradients((moved, only, first, second, scale, place))
        else:
            left[careful] = row
            careful += 1
    if careful == 0:
        return
    if _careful_gradients((x, left[:careful], one, two, scale, out)) != 0:
        for row in left[:careful]:  # which is not seen to happen
            out[row, :] = np.nan


@njit
def _top(x: Any, row: Any) -> Any:
    """The largest logit of a row, NaN if any is NaN."""
    top = -np.inf
    for i in range(x.shape[1]):
        value = np.float64(x[row, i])
        if np.isnan(value):
            return value
        top = max(top, value)
    return top


@njit(error_model="numpy")
def _coarse(top: float, scale: float) -> bool:
    return abs(top) * scale * 2.0**-52 > COARSE


@njit(error_model="numpy")
def _measure_from(top: float, x: Any, row: Any, moved: Any) -> None:
    reference = x.dtype.type(top)
    for i in range(x.shape[1]):
        moved[0, i] = x[row, i] - reference
