"""Sums of every row of logits, in two compiled passes: an entropy, weights, and the extremes.

The largest logit is taken out of the sums. Where its weight is close to 1 no digits are lost then,
as the rest is added up and never found by a difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import largest, plus, select, times, wide_vectors
from taut._softmax.kernel.arithmetic import limits, quick_exponential

BLOCK = 128  # entries that are summed in their own precision


@njit(forceinline=True)
def _extremes(x: Any, hidden: Any) -> Any:
    """Largest and lowest visible logit, number of visible ones, and of NaN."""
    wide_vectors()
    kind = x.dtype.type
    nothing, zero, one = kind(-np.inf), kind(0), kind(1)
    far = kind(3e38)  # with infinity LLVM rewrites the selection and does not vectorise it
    top, low, seen, bad = nothing, nothing, zero, zero
    for j in range(len(x)):
        value = x[j]
        shown = value > hidden
        top = largest(top, value)
        low = largest(low, zero - select(shown, value, far))
        seen = plus(seen, select(shown, one, zero))
        bad = plus(bad, select(value != value, one, zero))
    return top, -low, seen, bad


@njit(forceinline=True)
def _sums(x: Any, top: Any, deepest: Any) -> Any:
    """Σ exp(d) without the largest, Σ exp(d)·d, and how many are largest, over some entries."""
    wide_vectors()
    kind = x.dtype.type
    _, shifter, _, _ = limits(top)
    zero, one = kind(0), kind(1)
    rest, moment, ties = zero, zero, zero
    for j in range(len(x)):
        value = x[j]
        # Compared as differences: large logits less a depth would be rounded by more than that.
        depth = value - top
        counts = depth > deepest  # masked logits and those that are far below weigh nothing
        is_top = value == top
        depth = select(counts, depth, deepest)
        size = select(counts, quick_exponential(depth, kind(shifter)), zero)
        rest = plus(rest, select(is_top, zero, size))
        moment = plus(moment, times(size, depth))
        ties = plus(ties, select(is_top, one, zero))
    return rest, moment, ties


def fill_sums(x: Any, hidden: float, out: Any) -> None:
    """Fill the seven lines of ``out`` as ``taut._softmax.row_sums`` describes them (compiled)."""
    kind = x.dtype.type
    entries = x.shape[1]
    # Where exponentials are still normal.
    deepest = kind(-80.0) if x.itemsize == 4 else kind(-700.0)
    for i in range(x.shape[0]):
        top, low, seen, bad = _extremes(x[i], kind(hidden))
        if bad > 0 or not np.isfinite(top):
            out[0, i] = np.nan if bad > 0 else top
            out[1, i], out[2, i] = low, seen
            out[3, i] = out[4, i] = out[5, i] = out[6, i] = 0.0
            continue
        rest = moment = ties = 0.0
        leader = 0
        for first in range(0, entries, BLOCK):
            a, b, c = _sums(x[i, first : first + BLOCK], top, deepest)
            if ties == 0.0 and c > 0:  # the first block with the largest logit: find its place
                leader = first
                while x[i, leader] != top:
                    leader += 1
            rest += a
            moment += b
            ties += c
        rest += ties - 1.0
        one = np.exp(np.float64(x[i, 0]) - np.float64(top))
        out[0, i], out[1, i], out[2, i], out[3, i] = top, low, seen, rest
        out[4, i] = moment / (1.0 + rest)
        out[5, i] = one / (1.0 + rest) if x[i, 0] > hidden else 0.0
        out[6, i] = leader
