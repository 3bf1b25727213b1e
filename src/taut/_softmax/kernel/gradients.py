"""The compiled derivative of the exact constants, from the logits and what the forward pass found.

All is written in units of the second largest weight e₂: e = exp(λ(x − x₂)) for the entries below
the top, T their sum, X the root and γ = X − 1 its distance from the pole at e₂. The constants are
2λTe₂/Z² and λXe₂/Z with Z = 1 + Te₂, where the root moves by ∂X/∂eᵢ = X gᵢ²/S with gᵢ = γ/(X − eᵢ)
and S = Σ eⱼgⱼ² + e₂(Σ eⱼgⱼ)² (the implicit function theorem on Σ eⱼ/(X − eⱼ) = 1/(1 − e₂X)).

The forward pass knows x₁, x₂, γ and T of every row. So a row takes one pass that computes e and
eg², and a cheap one that combines them, in the precision of the logits. Rows where that precision
does not suffice are left to ``careful_gradients.py``: those next to ties of several, and those
where the terms of the derivative cancel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_lanes import lanes_of
from taut._base.compiled_long_lanes import (
    load_long,
    long_count,
    long_of,
    store_long,
    sum_of,
)
from taut._base.compiled_operations import (
    fma,
    plus,
    select,
    smallest,
    where_below,
    where_between,
    where_equal,
    wide_vectors,
)
from taut._softmax.kernel.arithmetic import exponential_parts, limits
from taut._softmax.kernel.careful_gradients import TIED
from taut._softmax.kernel.found import (
    FOUND,
    FOUND_E2,
    FOUND_GAP,
    FOUND_SECOND,
    FOUND_TAIL,
    FOUND_TOP,
)

SHORT = 32  # entries of rows that would leave most of a long vector empty
BATCH = 2048  # entries per batch
ROWS = 64  # most rows per batch

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
LIMITS64 = (700.0, 0.0, TIED, np.inf, 0.0)


def fill_gradients(
    x: Any, found: Any, first: Any, second: Any, scale: float, out: Any, left: Any
) -> int:
    """Gradients of first·λ‖M‖₁ + second·λ‖M‖₂ for the rows of ``x`` (compiled).

    The rows that were left out are marked in ``left``; also returned is how many they are.
    """
    zero = x.dtype.type(0)
    if x.shape[1] <= SHORT:
        return int(fill_in(lanes_of(zero), x, found, first, second, scale, out, left))
    return int(fill_in(long_of(zero), x, found, first, second, scale, out, left))


@njit
def fill_in(
    zeros: Any, x: Any, found: Any, first: Any, second: Any, scale: float, out: Any, left: Any
) -> float:
    """The same in vectors of the length of ``zeros``."""
    rows, n = x.shape
    lanes = long_count(zeros)
    width = (n + lanes - 1) // lanes * lanes
    batch = max(1, min(ROWS, BATCH // width))
    weights, moved = np.empty((batch, width), x.dtype), np.empty((batch, width), x.dtype)
    state = np.empty((QUANTITIES, batch))
    missing = 0.0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        gather(found, first, second, start, m, state)
        prepare(x, m, scale, state)
        for b in range(m):
            row_sums(zeros, x, start + b, state, b, scale, weights, moved)
        missing += combine(x, m, scale, state)
        for b in range(m):
            left[start + b] = state[LEFT, b] > 0.0
        for b in range(m):
            row_result(zeros, x, start + b, state, b, weights, moved, out)
    return missing


@njit
def gather(found: Any, first: Any, second: Any, start: int, rows: int, state: Any) -> None:
    """All that is given of the rows, in one array: LLVM need not ask whether they overlap."""
    for line in range(FOUND):
        for b in range(rows):
            state[line, b] = found[line, start + b]
    for b in range(rows):
        state[ONE, b] = first[start + b]
    for b in range(rows):
        state[TWO, b] = second[start + b]


@njit(error_model="numpy", fastmath={"contract"})
def prepare(x: Any, rows: int, scale: float, state: Any) -> None:
    """What the pass over the rows needs; marks the rows that it cannot do."""
    wide_vectors()
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


@njit(error_model="numpy", forceinline=True)
def row_sums(
    zeros: Any, x: Any, row: int, state: Any, b: int, scale: float, weights: Any, moved: Any
) -> None:
    """The e and eg² of a row, with the sums of eg and eg²."""
    kind = x.dtype.type
    n, lanes = x.shape[1], long_count(zeros)
    shifter, nothing = kind(limits(kind(0))[1]), zeros + kind(-np.inf)
    floor, second = kind(state[FLOOR, b]), kind(state[SECOND, b])
    gap, root = kind(state[GAP, b]), kind(1.0 + state[GAP, b])
    total = squares = zeros
    whole = n - n % lanes
    for i in range(0, whole, lanes):
        value = load_long(x, row, i, lanes, nothing)
        e, first, both = pole_weights(value, floor, second, gap, root, kind(scale), shifter)
        store_long(weights, b, i, lanes, e)
        store_long(moved, b, i, lanes, both)
        total, squares = total + first, squares + both
    # At most once, but not an `if`: with branches numba counts references between all operations.
    for i in range(whole, n, lanes):
        value = load_long(x, row, i, n - i, nothing)
        e, first, both = pole_weights(value, floor, second, gap, root, kind(scale), shifter)
        store_long(weights, b, i, lanes, e)
        store_long(moved, b, i, lanes, both)
        total, squares = total + first, squares + both
    state[SUM, b], state[SQUARES, b] = sum_of(total), sum_of(squares)


@njit(error_model="numpy", forceinline=True)
def pole_weights(
    value: Any, floor: Any, second: Any, gap: Any, root: Any, scale: Any, shifter: Any
) -> Any:
    """The e, eg and eg² of some entries; 0 at the top entry and at those below the floor.

    γ + (1 − e) keeps its digits next to e = 1, as there the exponential is 1 + t with a known t.
    """
    z = smallest(scale * (value - second), 0.0)  # the top entry counts as 1 until it is left out
    whole, t, e = exponential_parts(z, shifter)
    e = where_between(floor, value, second, e, 0.0)
    g = gap / where_equal(whole, 0.0, gap - t, root - e)
    eg = e * g
    return e, eg, eg * g


@njit(error_model="numpy", fastmath={"contract"})
def combine(x: Any, rows: int, scale: float, state: Any) -> float:
    """The derivative is LEVEL·e + PULL·eg² below the top, and minus the sum of that at the top.

    Returns how many rows are left out.
    """
    wide_vectors()
    eps, _, _, _ = limits(x.dtype.type(0))
    end = np.float64(np.finfo(x.dtype).max)
    _, _, _, misfits, cancelled = LIMITS32 if eps > 1e-10 else LIMITS64
    missing = 0.0
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
        out_of_reach = select((state[LEFT, b] > 0.0) | lost, 1.0, 0.0)
        state[LEFT, b] = out_of_reach
        missing = plus(missing, out_of_reach)
        state[LEVEL, b], state[PULL, b], state[AT_TOP, b] = level, pull, -at_top
    return missing


@njit(error_model="numpy", forceinline=True)
def row_result(
    zeros: Any, x: Any, row: int, state: Any, b: int, weights: Any, moved: Any, out: Any
) -> None:
    """Write a row of the result."""
    kind = x.dtype.type
    n, lanes = x.shape[1], long_count(zeros)
    level, pull = kind(state[LEVEL, b]), kind(state[PULL, b])
    second, at_top = kind(state[SECOND, b]), kind(state[AT_TOP, b])
    whole = n - n % lanes
    for i in range(0, whole, lanes):
        e, both = load_long(weights, b, i, lanes, zeros), load_long(moved, b, i, lanes, zeros)
        value = load_long(x, row, i, lanes, zeros)
        found = where_below(second, value, at_top, fma(level, e, pull * both))
        store_long(out, row, i, lanes, found)
    for i in range(whole, n, lanes):
        e, both = load_long(weights, b, i, lanes, zeros), load_long(moved, b, i, lanes, zeros)
        value = load_long(x, row, i, n - i, zeros)
        found = where_below(second, value, at_top, fma(level, e, pull * both))
        store_long(out, row, i, n - i, found)
