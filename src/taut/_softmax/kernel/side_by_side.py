"""The compiled kernel for short rows: as many side by side as a vector has lanes.

Along a short row a vector is hardly filled, and the sums over its lanes take longer than what they
sum. A tile holds the rows of one vector, transposed: line i has the i-th entries of all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_lanes import (
    BYTES,
    all_below,
    lanes_of,
    load_lanes,
    store_lanes,
    transpose_into,
)
from taut._base.compiled_operations import fma, largest, smallest, where_equal
from taut._softmax.kernel.arithmetic import exponential, limits
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
    X0,
    dead_rows,
    first_guess,
    hand_over,
    scalings,
    solve_expansion,
    write,
)
from taut._softmax.kernel.passes import pole_terms

STEP = 4  # lines that are summed pairwise first; tiles are padded to a multiple


@njit
def constants_side_by_side(
    x: Any, first: int, scales: Any, ceiling: float, error: Any, out: Any, found: Any
) -> float:
    """Fill the columns of ``out`` from ``first`` on; the number of rows that were not solved."""
    rows, n = x.shape
    scale, scale_high, ln2_low = scales
    eps, _, _, _ = limits(scale_high)
    lanes, lines = BYTES // x.itemsize, -(-n // STEP) * STEP
    batch = max(1, min(ROWS, BATCH // lines) // lanes) * lanes
    tiles = np.empty((batch // lanes, lines, lanes), x.dtype)
    state = np.zeros((QUANTITIES, batch))
    wrong = 0.0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        filled = -(-m // lanes) * lanes  # the last row stands in for those that are missing
        for b in range(0, filled, lanes):
            fill_tile(x, start + b, m - b, tiles[b // lanes])
            tile_tops(tiles[b // lanes], state, b)
        alive = scalings(state, filled, scale, scale_high, ln2_low)
        for b in range(0, filled, lanes):
            tile_sums(tiles[b // lanes], state, b, scale_high, ln2_low)
        if alive < filled:
            dead_rows(x, start, state, m)
        first_guess(state, filled, eps)
        tile_roots(tiles, state, filled, TOLERANCE * eps)
        wrong += write(state, m, first + start, scale, ceiling, error, out)
        hand_over(state, m, first + start, found)
    return wrong


@njit(forceinline=True)
def fill_tile(x: Any, start: int, rows: int, tile: Any) -> None:
    """Copy some rows, transposed; the last one again in lanes that are left over."""
    n, lanes = x.shape[1], tile.shape[1]
    if n >= lanes and rows >= lanes:
        for i in range(0, n - lanes + 1, lanes):
            transpose_into(x, start, i, tile)
        if n % lanes:  # the last entries, overlapping with those before
            transpose_into(x, start, n - lanes, tile)
    else:
        for r in range(lanes):
            row = start + min(r, rows - 1)
            for i in range(n):
                tile[i, r] = x[row, i]
    for i in range(n, tile.shape[0]):
        for r in range(lanes):
            tile[i, r] = -np.inf


@njit(forceinline=True)
def tile_tops(tile: Any, state: Any, b: int) -> None:
    """The largest entry of the rows of a tile, how many equal it, and the largest of the others.

    The largest is NaN where an entry is NaN.
    """
    kind = tile.dtype.type
    zero, one, nothing = kind(0), kind(1), kind(-np.inf)
    top = second = lanes_of(nothing)
    bad = lanes_of(zero)
    for i in range(tile.shape[0]):
        value = load_lanes(zero, tile, i, 0)
        bad = bad + where_equal(value, value, zero, one)
        second = largest(second, smallest(top, value))
        top = largest(top, value)
    ties = lanes_of(one)
    if not all_below(second, top):  # some are tied: count, and look below them
        second, ties = lanes_of(nothing), lanes_of(zero)
        for i in range(tile.shape[0]):
            value = load_lanes(zero, tile, i, 0)
            second = largest(second, where_equal(value, top, nothing, value))
            ties = ties + where_equal(value, top, one, zero)
    top = where_equal(bad, zero, top, kind(np.nan))
    store_lanes(state, TOP, b, top)
    store_lanes(state, SECOND, b, second)
    store_lanes(state, TIES, b, ties)


@njit(forceinline=True)
def tile_sums(tile: Any, state: Any, b: int, scale_high: Any, ln2_low: Any) -> None:
    """Replace the entries of a tile by exponentials, and sum them and their squares.

    Pairwise in steps of four and in two sums, so that no more than 3 + n/8 roundings add up.
    """
    zero = tile.dtype.type(0)
    top, floor = load_lanes(zero, state, TOP, b), load_lanes(zero, state, FLOOR, b)
    shifter = load_lanes(zero, state, SHIFTER, b)
    total = other = squares = lanes_of(zero)
    for i in range(0, tile.shape[0], STEP):
        e = exponential_below(tile, i, top, scale_high, ln2_low, shifter, floor)
        f = exponential_below(tile, i + 1, top, scale_high, ln2_low, shifter, floor)
        g = exponential_below(tile, i + 2, top, scale_high, ln2_low, shifter, floor)
        h = exponential_below(tile, i + 3, top, scale_high, ln2_low, shifter, floor)
        total, other = other, total + ((e + f) + (g + h))
        squares = squares + (fma(e, e, f * f) + fma(g, g, h * h))
    store_lanes(state, TAIL, b, total + other)
    store_lanes(state, SQUARES, b, squares)


@njit(forceinline=True)
def exponential_below(
    tile: Any, i: int, top: Any, scale: Any, ln2_low: Any, shifter: Any, floor: Any
) -> Any:
    """Replace a line of the tile by exponentials, the largest entries by next to nothing."""
    value = load_lanes(tile.dtype.type(0), tile, i, 0)
    value = where_equal(value, top, floor, value)
    e = exponential(value, top, scale, ln2_low, shifter, floor)
    store_lanes(tile, i, 0, e)
    return e


@njit(error_model="numpy", forceinline=True)
def expand_tile(tile: Any, state: Any, b: int) -> None:
    """Sums of ``pole_terms`` over the rows of a tile."""
    zero = tile.dtype.type(0)
    x = load_lanes(zero, state, X0, b)
    gap = x - load_lanes(zero, state, E2, b)
    s0 = s1 = s2 = s3 = lanes_of(zero)
    for i in range(0, tile.shape[0], 2):
        e, f = load_lanes(zero, tile, i, 0), load_lanes(zero, tile, i + 1, 0)
        t0, t1, t2, t3 = pole_terms(e, f, x, gap)
        s0, s1, s2, s3 = s0 + t0, s1 + t1, s2 + t2, s3 + t3
    store_lanes(state, X0, b, x)
    store_lanes(state, GAP, b, gap)
    store_lanes(state, A0, b, s0)
    store_lanes(state, A1, b, s1)
    store_lanes(state, A2, b, s2)
    store_lanes(state, A3, b, s3)


@njit(error_model="numpy")
def expand_row(tile: Any, state: Any, b: int, r: int) -> None:
    """The same for a single row, in lane r: for the few that need it again."""
    x = tile.dtype.type(state[X0, b])
    gap = x - tile.dtype.type(state[E2, b])
    s0 = s1 = s2 = s3 = tile.dtype.type(0)
    for i in range(0, tile.shape[0], 2):
        t0, t1, t2, t3 = pole_terms(tile[i, r], tile[i + 1, r], x, gap)
        s0, s1, s2, s3 = s0 + t0, s1 + t1, s2 + t2, s3 + t3
    state[X0, b], state[GAP, b] = x, gap
    state[A0, b], state[A1, b], state[A2, b], state[A3, b] = s0, s1, s2, s3


@njit
def tile_roots(tiles: Any, state: Any, rows: int, tolerance: float) -> None:
    """Expand and solve until every row is done: together while many are left, then one by one."""
    lanes = tiles.shape[2]
    left = float(rows)
    for _ in range(PASSES):
        if left * 8.0 < rows:
            break
        for b in range(0, rows, lanes):
            expand_tile(tiles[b // lanes], state, b)
        left = solve_expansion(state, 0, rows, tolerance)
    if left > 0.0:
        for b in range(rows):
            for _ in range(PASSES):
                if state[LIVE, b] == 0.0:
                    break
                expand_row(tiles[b // lanes], state, b, b % lanes)
                solve_expansion(state, b, b + 1, tolerance)
