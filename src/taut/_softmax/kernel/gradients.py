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

from taut._base.compiled_long_lanes import (
    load_long,
    long_count,
    long_of,
    store_long,
    sum_of,
)
from taut._base.compiled_operations import fma, where_below
from taut._softmax.kernel.arithmetic import limits
from taut._softmax.kernel.gradient_batch import (
    AT_TOP,
    BATCH,
    FLOOR,
    GAP,
    LEVEL,
    PULL,
    QUANTITIES,
    ROWS,
    SECOND,
    SQUARES,
    SUM,
    WIDTH,
    combine,
    gather,
    note_left,
    prepare,
)
from taut._softmax.kernel.gradients_side_by_side import gradients_side_by_side
from taut._softmax.kernel.passes import pole_weights

SHORT = 64  # entries of rows that are worked side by side


def fill_gradients(
    x: Any, found: Any, first: Any, second: Any, scale: float, out: Any, left: Any
) -> int:
    """Gradients of first·λ‖M‖₁ + second·λ‖M‖₂ for the rows of ``x`` (compiled).

    ``left`` has room for all rows; it begins with those that were left out, whose number is
    returned.
    """
    if x.shape[1] <= SHORT:
        return gradients_side_by_side(x, found, first, second, scale, out, left)
    return gradients_along_rows(x, found, first, second, scale, out, left)


@njit
def gradients_along_rows(
    x: Any, found: Any, first: Any, second: Any, scale: float, out: Any, left: Any
) -> int:
    """The same for long rows, each in vectors along itself."""
    rows, n = x.shape
    zeros = long_of(x.dtype.type(0))
    lanes = long_count(zeros)
    width = -(-n // (2 * lanes)) * (2 * lanes)
    batch = max(1, min(ROWS, BATCH // width))
    weights, moved = np.empty((batch, width), x.dtype), np.empty((batch, width), x.dtype)
    state = np.empty((QUANTITIES, WIDTH))
    count = 0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        gather(found, first, second, start, m, state)
        prepare(x, m, scale, state)
        for b in range(m):
            row_sums(zeros, x, start + b, state, b, scale, weights, moved)
        combine(x, m, scale, state)
        count = note_left(state, m, start, left, count)
        for b in range(m):
            row_result(zeros, x, start + b, state, b, weights, moved, out)
    return count


@njit(error_model="numpy", forceinline=True)
def row_sums(
    zeros: Any, x: Any, row: int, state: Any, b: int, scale: float, weights: Any, moved: Any
) -> None:
    """The e and eg² of a row, with the sums of eg and eg²."""
    kind = x.dtype.type
    n, lanes = x.shape[1], long_count(zeros)
    gap = state[GAP, b]
    row_of = kind(state[FLOOR, b]), kind(state[SECOND, b]), kind(gap), kind(1.0 + gap), kind(scale)
    total = squares = zeros
    whole = n - n % (2 * lanes)
    for i in range(0, whole, 2 * lanes):
        first, both = pair_sums(zeros, x, row, i, 2 * lanes, row_of, b, weights, moved)
        total, squares = total + first, squares + both
    # At most once, but not an `if`: with branches numba counts references between all operations.
    for i in range(whole, n, 2 * lanes):
        first, both = pair_sums(zeros, x, row, i, n - i, row_of, b, weights, moved)
        total, squares = total + first, squares + both
    state[SUM, b], state[SQUARES, b] = sum_of(total), sum_of(squares)


@njit(error_model="numpy", forceinline=True)
def pair_sums(
    zeros: Any, x: Any, row: int, i: int, count: int, row_of: Any, b: int, weights: Any, moved: Any
) -> Any:
    """The e and eg² of two vectors, of which ``count`` entries belong to the row; sums of both."""
    kind, lanes = x.dtype.type, long_count(zeros)
    floor, second, gap, root, scale = row_of
    nothing, shifter = zeros + kind(-np.inf), kind(limits(kind(0))[1])
    value = load_long(x, row, i, count, nothing)
    following = load_long(x, row, i + lanes, count - lanes, nothing)
    e, f, e1, f1, e2, f2 = pole_weights(value, following, floor, second, gap, root, scale, shifter)
    store_long(weights, b, i, lanes, e)
    store_long(weights, b, i + lanes, lanes, f)
    store_long(moved, b, i, lanes, e2)
    store_long(moved, b, i + lanes, lanes, f2)
    return e1 + f1, e2 + f2


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
