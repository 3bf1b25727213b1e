"""Scalar work of the compiled derivative, in float64 and vectorised across the rows of a batch.

What the symbols mean is said in ``gradients.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import assume_width, plus, select, wide_vectors
from taut._softmax.kernel.arithmetic import exponential_parts, limits
from taut._softmax.kernel.found import (
    FOUND,
    FOUND_E2,
    FOUND_GAP,
    FOUND_SECOND,
    FOUND_TAIL,
    FOUND_TOP,
)

BATCH = 2048
ROWS = 64  # most rows per batch
WIDTH = ROWS + 8  # length of the state's lines: powers of two compete for places in the cache

# Scalars of the rows of a batch: after what the forward pass found (``found.py``)
QUANTITIES = FOUND + 12
(
    ONE,  # derivatives with respect to λ‖M‖₁ and λ‖M‖₂
    TWO,
    FLOOR,
    SECOND,
    GAP,
    SUM,
    SQUARES,
    E2,
    BELOW_TOP,
    LEVEL,
    PULL,
    LEFT,
) = range(FOUND, QUANTITIES)
AT_TOP = SUM  # not needed at the same time

DEEPEST = -700.0  # rows whose second largest entry is below this are left out
# For float32 and float64: entries so far below the second largest count as masked; rows are left
# out whose root is next to a pole, or whose largest logits are next to a tie, or whose sums do not
# fit the root, in units of eps (three are nearly tied), or of whose terms no such share is left.
LIMITS32 = (80.0, 2.0**-12, 0.0, 24.0, 0.125)
LIMITS64 = (700.0, 0.0, 1e-6, np.inf, 0.0)


@njit(forceinline=True)
def gather(found: Any, first: Any, second: Any, start: int, rows: int, state: Any) -> None:
    """All that is given of some rows, in one array: LLVM need not ask whether they overlap."""
    wide_vectors()
    assume_width(state, WIDTH)
    for line in range(FOUND):
        given = found[line, start : start + rows]
        for b in range(rows):
            state[line, b] = given[b]
    one, two = first[start : start + rows], second[start : start + rows]
    for b in range(rows):
        state[ONE, b], state[TWO, b] = one[b], two[b]


@njit(error_model="numpy", fastmath={"contract"})
def prepare(x: Any, rows: int, scale: float, state: Any) -> None:
    """What the pass over the rows needs; marks the rows that it cannot do."""
    wide_vectors()
    assume_width(state, WIDTH)
    eps, _, _, _ = limits(x.dtype.type(0))
    _, shifter, _, _ = limits(0.0)
    depth, least, nearest, _, _ = LIMITS32 if eps > 1e-10 else LIMITS64
    end = np.float64(np.finfo(x.dtype).max)
    for b in range(rows):
        top, second = state[FOUND_TOP, b], state[FOUND_SECOND, b]
        gap, rounded = state[FOUND_GAP, b], state[FOUND_E2, b]
        z = scale * (second - top)
        fine = (z >= DEEPEST) & (z < -nearest) & (gap > least) & (abs(second) * scale * eps < 1.0)
        gap, second = select(fine, gap, 1.0), select(fine, second, 0.0)
        whole, t, e2 = exponential_parts(select(fine, z, -1.0), shifter)
        above = select(whole == 0.0, -t, 1.0 - e2)  # 1 − e₂
        # Next to a tie the rounding of e₂ moved the root: one of Newton's steps for 1 − e₂X.
        before, after = (1.0 - rounded) - rounded * gap, above - e2 * gap
        ratio = after / gap
        step = (after - before) * after / (before * (ratio * ratio + e2))
        gap += select(gap < 0.5, step, 0.0)
        state[LEFT, b] = select(fine, 0.0, 1.0)
        state[SECOND, b], state[FLOOR, b] = second, max(second - depth / scale, -end)
        state[GAP, b], state[E2, b], state[BELOW_TOP, b] = gap, e2, above - e2 * gap


@njit(error_model="numpy", fastmath={"contract"})
def combine(x: Any, rows: int, scale: float, state: Any) -> None:
    """The derivative is LEVEL·e + PULL·eg² below the top, and minus the sum of that at the top."""
    wide_vectors()
    assume_width(state, WIDTH)
    eps, _, _, _ = limits(x.dtype.type(0))
    end = np.float64(np.finfo(x.dtype).max)
    _, _, _, misfits, cancelled = LIMITS32 if eps > 1e-10 else LIMITS64
    for b in range(rows):
        e2, gap = state[E2, b], state[GAP, b]
        root = 1.0 + gap
        tail = state[FOUND_TAIL, b]
        squares, total = state[SQUARES, b], state[SUM, b]
        misfit = total * state[BELOW_TOP, b] - gap
        share = 1.0 / (1.0 + tail * e2)
        one, two = scale * state[ONE, b], scale * state[TWO, b]
        unit = scale * e2 * share * share
        of_one, of_two = 2.0 * one * share * unit, two * root * e2 * unit
        level = of_one * (1.0 - tail * e2) - of_two
        pull = scale * e2 * two * root * share / (squares + e2 * total * total)
        at_top = level * tail + pull * squares
        # What cancels is found to fewer digits.
        size = abs(of_one) * (1.0 + tail * e2) + abs(of_two) + abs(pull)
        kept = max(abs(at_top), abs(level + pull))
        lost = (not abs(misfit) <= misfits * eps * gap) | (kept < cancelled * size)
        lost |= not max(abs(level), abs(pull), abs(at_top)) <= end  # an infinite one times 0 is NaN
        state[LEFT, b] = select((state[LEFT, b] > 0.0) | lost, 1.0, 0.0)
        state[LEVEL, b], state[PULL, b], state[AT_TOP, b] = level, pull, -at_top


@njit
def note_left(state: Any, rows: int, start: int, left: Any, count: int) -> int:
    """Append the rows of a batch that are left out to the first ``count`` of ``left``."""
    missing = 0.0
    for b in range(rows):
        missing = plus(missing, state[LEFT, b])
    if missing > 0.0:
        for b in range(rows):
            if state[LEFT, b] > 0.0:
                left[count] = start + b
                count += 1
    return count
