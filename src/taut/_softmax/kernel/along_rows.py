"""The compiled kernel for long rows: a batch of rows at a time, each vectorised along itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import wide_vectors
from taut._softmax.kernel.arithmetic import limits, two_sum
from taut._softmax.kernel.batch import (
    A0,
    A1,
    A2,
    A3,
    BATCH,
    E2,
    FLOOR,
    GAP,
    LIVE,
    PASSES,
    QUANTITIES,
    ROWS,
    SECOND,
    SHIFTER,
    SQUARES,
    TAIL,
    TIES,
    TOLERANCE,
    TOP,
    WIDTH,
    X0,
    dead_rows,
    first_guess,
    hand_over,
    scalings,
    solve_expansion,
    write,
)
from taut._softmax.kernel.passes import exponentiate, find_top, pole_sums, strike_top

PAD = 64  # rows are padded with -inf to whole SIMD iterations: no scalar remainder loops
# Entries per block: sums run in the input's precision inside a block and compensated in float64
# across blocks. Short, because the roundings of a constant tail all have one sign.
BLOCK32, BLOCK64 = 128, 64


@njit
def constants_along_rows(
    x: Any, first: int, scales: Any, ceiling: float, error: Any, out: Any, found: Any
) -> float:
    """Fill the columns of ``out`` from ``first`` on; the number of rows that were not solved."""
    rows, n = x.shape
    scale, scale_high, ln2_low = scales
    eps, _, _, _ = limits(scale_high)
    batch, blocks, size, merge = buffers(n, x.itemsize)
    buffer = np.empty((batch, blocks * size), x.dtype)
    by_block = buffer.reshape((batch, blocks, size))
    by_half = buffer.reshape((batch, blocks // merge, 2, merge * size // 2))
    state = np.zeros((QUANTITIES, WIDTH))
    wrong = 0.0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        tops(x, start, m, buffer, state)
        alive = scalings(state, m, scale, scale_high, ln2_low)
        sums(by_block, state, m, scale_high, ln2_low)
        if alive < m:
            dead_rows(x, start, state, m)
        first_guess(state, m, eps)
        roots(by_half, state, m, TOLERANCE * eps)
        wrong += write(state, m, first + start, scale, ceiling, error, out)
        hand_over(state, m, first + start, found)
    return wrong


@njit
def buffers(n: int, itemsize: int) -> Any:
    """Rows of a batch, blocks of a row, their size, and how many are joined for the poles."""
    block = BLOCK32 if itemsize == 4 else BLOCK64
    blocks = (n + block - 1) // block
    size = (n + blocks * PAD - 1) // (blocks * PAD) * PAD
    merge = 1
    while blocks % (2 * merge) == 0 and merge * size < 512:
        merge *= 2
    return max(1, min(ROWS, BATCH // (blocks * size))), blocks, size, merge


@njit
def tops(x: Any, start: int, rows: int, buffer: Any, state: Any) -> None:
    """The two largest entries of the rows of the batch."""
    wide_vectors()
    for b in range(rows):
        state[TOP, b] = find_top(x, start + b)
    for b in range(rows):
        top = x.dtype.type(state[TOP, b])
        state[TIES, b], state[SECOND, b] = strike_top(x, start + b, buffer, b, top)


@njit
def sums(buffer: Any, state: Any, rows: int, scale_high: Any, ln2_low: Any) -> None:
    """The exponentials of the live rows and their power sums, compensated across blocks."""
    wide_vectors()
    to_input = type(scale_high)
    for b in range(rows):
        if state[LIVE, b] == 0.0:
            continue
        top, shifter = to_input(state[TOP, b]), to_input(state[SHIFTER, b])
        floor = to_input(state[FLOOR, b])
        total = lost = squares = 0.0
        for block in range(buffer.shape[1]):
            part, part_squares = exponentiate(
                buffer, b, block, top, scale_high, ln2_low, shifter, floor
            )
            total, error = two_sum(total, np.float64(part))
            lost += error
            squares += part_squares
        state[TAIL, b], state[SQUARES, b] = total + lost, squares


@njit(error_model="numpy")
def expand(buffer: Any, state: Any, first: int, last: int) -> None:
    """The pass over the live rows that expands F about X0."""
    wide_vectors()
    to_input = buffer.dtype.type
    for b in range(first, last):
        if state[LIVE, b] == 0.0:
            continue
        x0, e2 = to_input(state[X0, b]), to_input(state[E2, b])
        gap = x0 - e2
        a0 = a1 = a2 = a3 = 0.0
        for block in range(buffer.shape[1]):
            s0, s1, s2, s3 = pole_sums(buffer, b, block, x0, gap)
            a0 += s0
            a1 += s1
            a2 += s2
            a3 += s3
        state[X0, b], state[GAP, b] = x0, gap
        state[A0, b], state[A1, b], state[A2, b], state[A3, b] = a0, a1, a2, a3


@njit
def roots(buffer: Any, state: Any, rows: int, tolerance: float) -> None:
    """Expand and solve until every row is done: together while many are left, then one by one."""
    left = float(rows)
    for _ in range(PASSES):
        if left * 8.0 < rows:
            break
        expand(buffer, state, 0, rows)
        left = solve_expansion(state, 0, rows, tolerance)
    if left > 0.0:
        for b in range(rows):
            for _ in range(PASSES):
                if state[LIVE, b] == 0.0:
                    break
                expand(buffer, state, b, b + 1)
                solve_expansion(state, b, b + 1, tolerance)
