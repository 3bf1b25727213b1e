"""The compiled constants and their derivatives as custom calls of XLA, for JAX on CPUs.

NaN and +inf cannot be refused here: such a row gives NaN throughout.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]

from taut._base.compiled import compiled_callback
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
from taut._softmax.kernel.coarse_rows import solve_the_rest, treat_the_rest
from taut._softmax.kernel.found import FOUND
from taut._softmax.kernel.linked import constants, gradients, link_kernels

LINES = 6


@lru_cache
def handlers(char: str) -> tuple[Any, Any]:
    """The handlers of constants and of gradients for one precision, compiled on first use."""
    both = (
        (constants_of_float32, gradients_of_float32)
        if char == "f"
        else (constants_of_float64, gradients_of_float64)
    )
    link_kernels(char)
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
    """From logits to lower, value and upper of the two constants, and two results more.

    Those are the relative error, and what derivatives need of each row. The numbers are λ, λ/2
    rounded up, and how far rounding may have gone, relative and absolute.
    """
    logits, kept = argument(frame, 0), result(frame, LINES + 1)
    n, rows = length(logits, 0), rows_before(logits, 1)
    # The words of ``found`` are pairs of 32 bits, as float64 may be switched off in JAX.
    columns = rows_before(kept, 0) // (2 * FOUND)
    x = carray(data(logits), (rows, n), kind)
    found = carray(data(kept), (FOUND, columns), np.float64)
    for line in range(LINES + 1):  # should there be no memory for the work
        carray(data(result(frame, line)), (rows,), kind)[:] = np.nan
    found[:] = 0.0  # with which the derivative is searched from the logits alone
    out, moved = np.full((LINES, rows), np.nan, x.dtype), np.empty((1, n), x.dtype)
    nothing = np.empty((FOUND, 0))
    modes = plain_arithmetic()
    scale, ceiling = number(frame, 0), number(frame, 1)
    error = (number(frame, 2), number(frame, 3))
    if constants((x, 0, scale, ceiling, error[0], error[1], out, found)) != 0:
        solve_the_rest(x, scale, ceiling, error, out, moved, nothing)
    _leave_subnormals(out)
    set_arithmetic(modes)
    for line in range(LINES):
        carray(data(result(frame, line)), (rows,), kind)[:] = out[line]
    carray(data(result(frame, LINES)), (rows,), kind)[:] = x.dtype.type(error[0])


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
    left, only = np.empty(rows, np.int64), np.zeros(1, np.int64)
    moved = np.empty((1, n), x.dtype)
    modes = plain_arithmetic()
    count = gradients((x, found, one, two, scale, out, left))
    if count > 0:
        treat_the_rest(x, left[:count], one, two, scale, out, moved, only)
    set_arithmetic(modes)
