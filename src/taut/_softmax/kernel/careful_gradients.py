"""The compiled derivative of the exact constants for rows that need care, from the logits alone.

With e the weights in units of the largest, T their sum without it and Z = 1 + T, the constants are
2λT/Z² and λX/Z, where the root X moves by ∂X/∂eᵢ = X gᵢ²/S with gᵢ = (X − e₂)/(X − eᵢ) and
S = Σ eⱼgⱼ² + ((X − e₂)/(1 − X))² (the implicit function theorem). Everything is done in float64,
also for float32 logits: next to a tie the distances of X from its poles need the digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import largest, plus, select, wide_vectors
from taut._softmax.kernel.along_rows import buffers, roots, sums
from taut._softmax.kernel.arithmetic import limits
from taut._softmax.kernel.batch import (
    E2,
    FLOOR,
    LIVE,
    QUANTITIES,
    ROOT,
    SECOND,
    SIGMA_1,
    SIGMA_2,
    TAIL,
    TIES,
    TOLERANCE,
    TOP,
    WIDTH,
    X0,
    first_guess,
    scalings,
)
from taut._softmax.kernel.passes import find_top

# Where λ(x₁ − x₂) is below this, the root is searched from its poles: the difference loses digits.
NEAR = 2.0**-10
NOTHING = 2.0**-1020  # a gap that cannot be divided by: entries so near the largest are tied
STEPS = 100  # of that search at most; about eight suffice


def fill_careful_gradients(x: Any, left: Any, one: Any, two: Any, scale: float, out: Any) -> int:
    """Gradients of one·λ‖M‖₁ + two·λ‖M‖₂ for the rows of ``x`` that ``left`` names (compiled).

    Returns the number of rows that it could not do: their logits are too coarse for the kernel.
    """
    rows, n = len(left), x.shape[1]
    batch, blocks, size, merge = buffers(n, 8)
    buffer = np.empty((batch, blocks * size))
    by_block = buffer.reshape((batch, blocks, size))
    by_half = buffer.reshape((batch, blocks // merge, 2, merge * size // 2))
    state, moved = np.zeros((QUANTITIES, WIDTH)), np.zeros(n)
    eps, _, _, ln2_rest = limits(scale)
    margin = NOTHING / scale
    wrong = 0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        for b in range(m):
            top = np.float64(find_top(x, left[start + b]))
            state[TOP, b] = top
            state[TIES, b], state[SECOND, b] = strike(x, left[start + b], buffer, b, top, margin)
        scalings(state, m, scale, scale, ln2_rest)
        sums(by_block, state, m, scale, ln2_rest)
        for b in range(m):
            # A row without others has no derivative; first_guess reads whatever is left.
            state[TAIL, b] = select(state[LIVE, b] > 0.0, state[TAIL, b], 0.0)
        first_guess(state, m, eps)
        roots(by_half, state, m, TOLERANCE * eps)
        for b in range(m):
            row = left[start + b]
            first, second = np.float64(one[row]), np.float64(two[row])
            write_gradient(x, row, buffer, b, moved, state, scale, margin, first, second, out)
            wrong += np.isnan(state[SIGMA_1, b])
    return wrong


@njit(forceinline=True)
def strike(x: Any, row: int, buffer: Any, b: int, top: float, margin: float) -> Any:
    """Copy a row without the entries that are tied for the largest, padded with -inf.

    Returns how many those were, and the largest of the others.
    """
    wide_vectors()
    second, ties = -np.inf, 0.0
    for i in range(x.shape[1]):
        value = np.float64(x[row, i])
        is_top = (value == top) | (top - value <= margin)
        value = select(is_top, -np.inf, value)
        buffer[b, i] = value
        ties = plus(ties, select(is_top, 1.0, 0.0))
        second = largest(second, value)
    for i in range(x.shape[1], buffer.shape[1]):
        buffer[b, i] = -np.inf
    return ties, second


@njit(error_model="numpy")
def write_gradient(
    x: Any,
    row: int,
    buffer: Any,
    b: int,
    moved: Any,
    state: Any,
    scale: float,
    margin: float,
    first: float,
    second: float,
    out: Any,
) -> None:
    """One row of the result, from its exponentials and its root."""
    wide_vectors()
    n = x.shape[1]
    if not state[TAIL, b] > 0.0:
        for i in range(n):
            out[row, i] = 0.0
        return
    sigma = state[SIGMA_1, b] * state[SIGMA_2, b]
    ties, floor, top = state[TIES, b], state[FLOOR, b], state[TOP, b]
    tail = (ties - 1.0) + state[TAIL, b] * sigma
    share = 1.0 / (1.0 + tail)
    apart = scale * (top - state[SECOND, b])
    tied = ties > 1.0
    # The scaled root and its distance from the second largest; the root of a tie does not move.
    x0 = state[X0, b]
    gap = x0 - state[E2, b]
    root, pull = state[ROOT, b], 0.0
    if tied:
        root = 1.0
        moved[:] = 0.0
    else:
        if apart < NEAR:
            sigma = 1.0
            gap, at_top = near_root(x, row, state[SECOND, b], top, scale, buffer[b], moved)
            x0 = root = np.exp(-apart) + gap
        else:
            at_top = gap / (1.0 - root)
            for i in range(n):
                moved[i] = x0 - buffer[b, i]
        squares = 0.0
        for i in range(n):
            g = gap / moved[i]
            moved[i] = buffer[b, i] * g * g
            squares = plus(squares, moved[i])
        # S and X in units of σ, as the weights may be next to underflow
        pull = x0 / (squares + at_top * at_top * sigma) * share
    # λe(level + pull g²), and minus the sum of it for the largest.
    one = first * 2.0 * scale * (1.0 - tail) * share * share * share
    level = scale * (one - second * scale * root * share * share)
    pull = second * scale * scale * pull
    total = 0.0
    for i in range(n):
        value = np.float64(x[row, i])
        derivative = sigma * (level * buffer[b, i] + pull * moved[i])
        counts = (value >= floor) & (top - value > margin)
        derivative = select(counts, derivative, 0.0)
        total = plus(total, derivative)
        out[row, i] = derivative
    if tied:
        for i in range(n):
            if top - x[row, i] <= margin:
                out[row, i] = -total / ties
    else:
        for i in range(n):
            if x[row, i] == top:
                out[row, i] = -total
                break


@njit(error_model="numpy")
def near_root(
    x: Any, row: int, second: float, top: float, scale: float, weights: Any, distances: Any
) -> Any:
    """X − e₂ and (X − e₂)/(1 − X) of a row whose two largest entries are nearly tied.

    Both distances are parts of the gap d = 1 − e₂: with u = (X − e₂)/d the secular equation is
    e₂/u + dΣeᵢ/(X − eᵢ) = 1/(1 − u), the sum over all but the two largest, and its left-hand side
    minus its right-hand side falls from ∞ to −∞. No difference of rounded weights is taken.
    ``weights`` is filled with e, 0 at the top, and ``distances`` with X − e.
    """
    wide_vectors()
    d, n = -np.expm1(scale * (second - top)), x.shape[1]
    spare = -1
    for i in range(n):
        value = np.float64(x[row, i])
        weights[i] = 0.0 if value == top else np.exp(scale * (value - top))
        distances[i] = -(1.0 - d) * np.expm1(scale * (value - second))  # e₂ − e
        if value == second:
            spare = i
    distances[spare] = np.inf  # not in the sum
    low, high, u = 0.0, 1.0, 0.5
    inverse = 1.0 / d
    for _ in range(STEPS):
        above, slope = 0.0, 0.0
        for i in range(n):
            unit = u + distances[i] * inverse
            ratio = weights[i] / unit
            above = plus(above, ratio)
            slope = plus(slope, ratio / unit)
        excess = (1.0 - d) / u + above - 1.0 / (1.0 - u)
        slope += (1.0 - d) / (u * u) + 1.0 / ((1.0 - u) * (1.0 - u))
        low, high = (u, high) if excess > 0.0 else (low, u)
        before, u = u, u + excess / slope
        if not low < u < high:
            u = 0.5 * (low + high)
        if abs(u - before) <= 2.0**-52 * min(u, 1.0 - u):
            break
    distances[spare] = 0.0
    for i in range(n):
        distances[i] += u * d
    return u * d, u / (1.0 - u)
