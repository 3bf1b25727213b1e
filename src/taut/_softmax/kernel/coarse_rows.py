"""Rows that are left out where XLA calls: NaN throughout, or too coarse for the kernels.

Coarse rows are measured from their largest logit, which is exact for all entries that have any
weight. Nothing is allocated here: an error would leave the modes of arithmetic as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._softmax.kernel.linked import careful_gradients, constants

# Logits are coarse if their unit in the last place in float64, times λ, exceeds this. Whatever has
# a weight is then so near the largest that the difference is exact in either precision.
COARSE = 1e-9


@njit(error_model="numpy")
def solve_the_rest(
    x: Any, scale: float, ceiling: float, error: Any, out: Any, moved: Any, nothing: Any
) -> None:
    """The rows that have no value yet: NaN throughout, or moved so that the kernel can do them.

    ``moved`` has room for a row, and ``nothing`` none for what derivatives need.
    """
    for row in range(len(x)):
        if not (np.isnan(out[1, row]) or np.isnan(out[4, row])):
            continue
        out[:, row] = np.nan
        top = _top(x, row)
        if np.isfinite(top) and _coarse(top, scale):
            _measure_from(top, x, row, moved)
            constants((moved, row, scale, ceiling, error[0], error[1], out, nothing))


@njit(error_model="numpy")
def treat_the_rest(
    x: Any, left: Any, one: Any, two: Any, scale: float, out: Any, moved: Any, only: Any
) -> None:
    """The rows that are left, with care; NaN throughout where an entry is NaN or +inf.

    ``moved`` has room for a row, and ``only`` is its number there, 0.
    """
    careful = 0
    for row in left:
        top = _top(x, row)
        out[row, :] = np.nan  # should there be no memory for the work
        if np.isnan(top) or top == np.inf:
            continue
        if np.isfinite(top) and _coarse(top, scale):
            _measure_from(top, x, row, moved)
            place = out[row : row + 1]
            first, second = one[row : row + 1], two[row : row + 1]
            careful_gradients((moved, only, first, second, scale, place))
        else:
            left[careful] = row
            careful += 1
    if careful == 0:
        return
    if careful_gradients((x, left[:careful], one, two, scale, out)) != 0:
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
