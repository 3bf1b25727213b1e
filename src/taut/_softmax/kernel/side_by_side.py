"""The compiled kernel for short rows: as many side by side as a vector has lanes.

Along a short row a vector is hardly filled, and the sums over its lanes take longer than what they
sum. A tile holds the rows of one vector, transposed: line i has the i-th entries of all of them.
The tiles of a batch lie one below the other, and functions are given where theirs begins: numba
would count references to parts of an array, which takes as long as several lines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_lane_memory import load_lanes, prefetch, store_lanes
from taut._base.compiled_lanes import all_below, lane_count, lanes_of
from taut._base.compiled_operations import fma, largest, smallest, where_equal
from taut._base.compiled_transpose import transpose_square
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
    WIDTH,
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
    lanes, lines = lane_count(x.dtype.type(0)), -(-n // STEP) * STEP
    batch = max(1, min(ROWS, BATCH // lines) // lanes) * lanes
    tiles = np.empty((batch // lanes * lines, lanes), x.dtype)
    state = np.zeros((QUANTITIES, WIDTH))
    wrong = 0.0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        filled = -(-m // lanes) * lanes  # the last row stands in for those that are missing
        for tile in range(filled // lanes):
            fill_tile(x, start + tile * lanes, m - tile * lanes, tiles, tile * lines, lines)
            tile_tops(tiles, tile * lines, lines, state, tile * lanes)
        alive = scalings(state, filled, scale, scale_high, ln2_low)
        for tile in range(filled // lanes):
            tile_sums(tiles, tile * lines, lines, state, tile * lanes, scale_high, ln2_low)
            following = start + batch + tile * lanes
            if following + lanes <= rows:
                ask_for(x, following)
        if alive < filled:
            dead_rows(x, start, state, m)
        first_guess(state, filled, eps)
        tile_roots(tiles, lines, state, filled, TOLERANCE * eps)
        wrong += write(state, m, first + start, scale, ceiling, error, out)
        hand_over(state, m, first + start, found)
    return wrong


@njit(forceinline=True)
def ask_for(x: Any, start: int) -> None:
    """Have the rows of a tile of the next batch fetched while this one is worked.

    Reading and computing alternate, so that memory would have nothing to do meanwhile.
    """
    lanes = lane_count(x.dtype.type(0))
    for i in range(0, lanes * x.shape[1], lanes):
        prefetch(x, start, i)


@njit(forceinline=True)
def fill_tile(x: Any, start: int, rows: int, tiles: Any, at: int, lines: int) -> None:
    """Copy some rows, transposed; the last one again in lanes that are left over."""
    n, lanes = x.shape[1], lane_count(x.dtype.type(0))
    if n >= lanes and rows >= lanes:
        for i in range(0, n - lanes + 1, lanes):
            transpose_square(x, start, i, tiles, at + i, 0)
        if n & (lanes - 1):  # the last entries, overlapping with those before
            transpose_square(x, start, n - lanes, tiles, at + n - lanes, 0)
    else:
        for r in range(lanes):
            row = start + min(r, rows - 1)
            for i in range(n):
                tiles[at + i, r] = x[row, i]
    for i in range(n, lines):
        for r in range(lanes):
            tiles[at + i, r] = -np.inf


@njit(forceinline=True)
def tile_tops(tiles: Any, at: int, lines: int, state: Any, b: int) -> None:
    """The largest entry of the rows of a tile, how many equal it, and the largest of the others.

    The largest is NaN where an entry is NaN.
    """
    kind = tiles.dtype.type
    zero, one, nothing = kind(0), kind(1), kind(-np.inf)
    top = second = lanes_of(nothing)
    bad = lanes_of(zero)
    for i in range(at, at + lines):
        value = load_lanes(zero, tiles, i, 0)
        bad = bad + where_equal(value, value, zero, one)
        second = largest(second, smallest(top, value))
        top = largest(top, value)
    ties = lanes_of(one)
    if not all_below(second, top):  # some are tied: count, and look below them
        second, ties = lanes_of(nothing), lanes_of(zero)
        for i in range(at, at + lines):
            value = load_lanes(zero, tiles, i, 0)
            second = largest(second, where_equal(value, top, nothing, value))
            ties = ties + where_equal(value, top, one, zero)
    top = where_equal(bad, zero, top, kind(np.nan))
    store_lanes(state, TOP, b, top)
    store_lanes(state, SECOND, b, second)
    store_lanes(state, TIES, b, ties)


@njit(forceinline=True)
def tile_sums(
    tiles: Any, at: int, lines: int, state: Any, b: int, scale_high: Any, ln2_low: Any
) -> None:
    """Replace the entries of a tile by exponentials, and sum them and their squares.

    Pairwise in steps of four and in two sums, so that no more than 3 + n/8 roundings add up.
    """
    zero = tiles.dtype.type(0)
    top, floor = load_lanes(zero, state, TOP, b), load_lanes(zero, state, FLOOR, b)
    shifter = load_lanes(zero, state, SHIFTER, b)
    total = other = squares = lanes_of(zero)
    for i in range(at, at + lines, STEP):
        e = exponential_below(tiles, i, top, scale_high, ln2_low, shifter, floor)
        f = exponential_below(tiles, i + 1, top, scale_high, ln2_low, shifter, floor)
        g = exponential_below(tiles, i + 2, top, scale_high, ln2_low, shifter, floor)
        h = exponential_below(tiles, i + 3, top, scale_high, ln2_low, shifter, floor)
        total, other = other, total + ((e + f) + (g + h))
        squares = squares + (fma(e, e, f * f) + fma(g, g, h * h))
    store_lanes(state, TAIL, b, total + other)
    store_lanes(state, SQUARES, b, squares)


@njit(forceinline=True)
def exponential_below(
    tiles: Any, i: int, top: Any, scale: Any, ln2_low: Any, shifter: Any, floor: Any
) -> Any:
    """Replace a line of the tile by exponentials, the largest entries by next to nothing."""
    value = load_lanes(tiles.dtype.type(0), tiles, i, 0)
    value = where_equal(value, top, floor, value)
    e = exponential(value, top, scale, ln2_low, shifter, floor)
    store_lanes(tiles, i, 0, e)
    return e


@njit(error_model="numpy", forceinline=True)
def expand_tile(tiles: Any, at: int, lines: int, state: Any, b: int) -> None:
    """Sums of ``pole_terms`` over the rows of a tile."""
    zero = tiles.dtype.type(0)
    x = load_lanes(zero, state, X0, b)
    gap = x - load_lanes(zero, state, E2, b)
    s0 = s1 = s2 = s3 = lanes_of(zero)
    for i in range(at, at + lines, 2):
        e, f = load_lanes(zero, tiles, i, 0), load_lanes(zero, tiles, i + 1, 0)
        t0, t1, t2, t3 = pole_terms(e, f, x, gap)
        s0, s1, s2, s3 = s0 + t0, s1 + t1, s2 + t2, s3 + t3
    store_lanes(state, X0, b, x)
    store_lanes(state, GAP, b, gap)
    store_lanes(state, A0, b, s0)
    store_lanes(state, A1, b, s1)
    store_lanes(state, A2, b, s2)
    store_lanes(state, A3, b, s3)


@njit(error_model="numpy")
def expand_row(tiles: Any, at: int, lines: int, state: Any, b: int, r: int) -> None:
    """The same for a single row, in lane r: for the few that need it again."""
    x = tiles.dtype.type(state[X0, b])
    gap = x - tiles.dtype.type(state[E2, b])
    s0 = s1 = s2 = s3 = tiles.dtype.type(0)
    for i in range(at, at + lines, 2):
        t0, t1, t2, t3 = pole_terms(tiles[i, r], tiles[i + 1, r], x, gap)
        s0, s1, s2, s3 = s0 + t0, s1 + t1, s2 + t2, s3 + t3
    state[X0, b], state[GAP, b] = x, gap
    state[A0, b], state[A1, b], state[A2, b], state[A3, b] = s0, s1, s2, s3


@njit
def tile_roots(tiles: Any, lines: int, state: Any, rows: int, tolerance: float) -> None:
    """Expand and solve until every row is done: together while many are left, then one by one."""
    lanes = lane_count(tiles.dtype.type(0))
    left = float(rows)
    for _ in range(PASSES):
        if left * 8.0 < rows:
            break
        for tile in range(rows // lanes):
            expand_tile(tiles, tile * lines, lines, state, tile * lanes)
        left = solve_expansion(state, 0, rows, tolerance)
    if left > 0.0:
        for b in range(rows):
            for _ in range(PASSES):
                if state[LIVE, b] == 0.0:
                    break
                expand_row(tiles, b // lanes * lines, lines, state, b, b & (lanes - 1))
                solve_expansion(state, b, b + 1, tolerance)
