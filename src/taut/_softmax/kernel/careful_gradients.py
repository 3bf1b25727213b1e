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
    X0,
    first_guess,
    scalings,
)
from taut._softmax.kernel.passes import find_top

# Logits this close to the largest (times λ) count as tied with it. The derivative is continuous
# there but for about as much, and the distances of the root from its poles lose no more digits.
TIED = 3e-8


def fill_careful_gradients(x: Any, left: Any, one: Any, two: Any, scale: float, out: Any) -> int:
    """Gradients of one·λ‖M‖₁ + two·λ‖M‖₂ for the rows of ``x`` that are marked (compiled).

    Returns the number of rows that it could not do: their logits are too coarse for the kernel.
    """
    chosen, rows = np.empty(len(left), np.int64), 0
    for row in range(len(left)):
        chosen[rows] = row
        rows += left[row]
    n = x.shape[1]
    batch, blocks, size, merge = buffers(n, 8)
    buffer = np.empty((batch, blocks * size))
    by_block = buffer.reshape((batch, blocks, size))
    by_half = buffer.reshape((batch, blocks // merge, 2, merge * size // 2))
    state, moved = np.zeros((QUANTITIES, batch)), np.zeros(n)
    eps, _, _, ln2_rest = limits(scale)
    wrong = 0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        for b in range(m):
            top = np.float64(find_top(x, chosen[start + b]))
            threshold = top - TIED / scale
            state[TOP, b] = top
            state[TIES, b], state[SECOND, b] = strike(x, chosen[start + b], buffer, b, threshold)
        scalings(state, m, scale, scale, ln2_rest)
        sums(by_block, state, m, scale, ln2_rest)
        for b in range(m):
            # A row without others has no derivative; first_guess reads whatever is left.
            state[TAIL, b] = select(state[LIVE, b] > 0.0, state[TAIL, b], 0.0)
        first_guess(state, m, eps)
        roots(by_half, state, m, TOLERANCE * eps)
        for b in range(m):
            row = chosen[start + b]
            first, second = np.float64(one[row]), np.float64(two[row])
            write_gradient(x, row, buffer, b, moved, state, scale, first, second, out)
            wrong += np.isnan(state[SIGMA_1, b])
    return wrong


@njit(forceinline=True)
def strike(x: Any, row: int, buffer: Any, b: int, threshold: float) -> Any:
    """Copy a row without the entries from the threshold on, padded with -inf.

    Returns how many those were, and the largest of the others.
    """
    wide_vectors()
    second, ties = -np.inf, 0.0
    for i in range(x.shape[1]):
        value = np.float64(x[row, i])
        is_top = value >= threshold
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
    ties, floor = state[TIES, b], state[FLOOR, b]
    threshold = state[TOP, b] - TIED / scale
    tail = (ties - 1.0) + state[TAIL, b] * sigma
    share = 1.0 / (1.0 + tail)
    tied = ties > 1.0
    # The scaled root and its distance from the second largest; the root of a tie does not move.
    x0 = state[X0, b]
    gap = x0 - state[E2, b]
    root, pull = state[ROOT, b], 0.0
    if tied:
        root = 1.0
        moved[:] = 0.0
    else:
        squares = 0.0
        for i in range(n):
            e = buffer[b, i]
            g = gap / (x0 - e)
            moved[i] = e * g * g
            squares = plus(squares, moved[i])
        # S and X in units of σ, as the weights may be next to underflow
        at_top = gap / (1.0 - root)
        pull = x0 / (squares + at_top * at_top * sigma) * share
    # λe(level + pull g²), and minus the sum of it for the largest.
    one = first * 2.0 * scale * (1.0 - tail) * share * share * share
    level = scale * (one - second * scale * root * share * share)
    pull = second * scale * scale * pull
    total = 0.0
    for i in range(n):
        value = np.float64(x[row, i])
        derivative = sigma * (level * buffer[b, i] + pull * moved[i])
        counts = (value >= floor) & (value < threshold)
        derivative = select(counts, derivative, 0.0)
        total = plus(total, derivative)
        out[row, i] = derivative
    if tied:
        for i in range(n):
            if x[row, i] >= threshold:
                out[row, i] = -total / ties
    else:
        for i in range(n):
            if x[row, i] >= threshold:
                out[row, i] = -total
                break
