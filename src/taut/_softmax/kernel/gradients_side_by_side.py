"""The compiled derivative for short rows: as many side by side as a vector has lanes.

The tiles are those of ``side_by_side.py``. What the symbols mean is said in ``gradients.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_lane_memory import load_lanes, store_lanes
from taut._base.compiled_lanes import lane_count, lanes_of
from taut._base.compiled_operations import fma, where_below
from taut._base.compiled_transpose import transpose_square
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
from taut._softmax.kernel.passes import pole_weights
from taut._softmax.kernel.side_by_side import STEP, ask_for, fill_tile

AT_THE_TOP = -1.0  # in place of eg², which is not negative


@njit
def gradients_side_by_side(
    x: Any, found: Any, first: Any, second: Any, scale: float, out: Any, left: Any
) -> int:
    """Fill ``out``, begin ``left`` with the rows that were left out, and return their number."""
    rows, n = x.shape
    lanes, lines = lane_count(x.dtype.type(0)), -(-n // STEP) * STEP
    batch = max(1, min(ROWS, BATCH // lines) // lanes) * lanes
    shape = batch // lanes * lines, lanes
    tiles, moved = np.empty(shape, x.dtype), np.empty(shape, x.dtype)
    state = np.empty((QUANTITIES, WIDTH))
    count = 0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        filled = -(-m // lanes) * lanes  # the last row stands in for those that are missing
        gather(found, first, second, start, m, state)
        for b in range(m, filled):
            state[:, b] = state[:, m - 1]
        prepare(x, filled, scale, state)
        for tile in range(filled // lanes):
            at, b = tile * lines, tile * lanes
            fill_tile(x, start + b, m - b, tiles, at, lines)
            tile_sums(tiles, moved, at, lines, state, b, scale)
            if start + batch + b + lanes <= rows:
                ask_for(x, start + batch + b)
        combine(x, filled, scale, state)
        count = note_left(state, m, start, left, count)
        for tile in range(filled // lanes):
            at, b = tile * lines, tile * lanes
            tile_result(tiles, moved, at, lines, state, b)
            write_tile(tiles, at, m - b, out, start + b)
    return count


@njit(error_model="numpy", forceinline=True)
def tile_sums(
    tiles: Any, moved: Any, at: int, lines: int, state: Any, b: int, scale: float
) -> None:
    """The e and eg² of a tile, with the sums of eg and eg² of its rows."""
    kind = tiles.dtype.type
    zero = kind(0)
    floor, second = load_lanes(zero, state, FLOOR, b), load_lanes(zero, state, SECOND, b)
    gap = load_lanes(zero, state, GAP, b)
    rows = floor, second, gap, kind(1) + gap, kind(scale)
    total = other = squares = others = lanes_of(zero)
    for i in range(at, at + lines, STEP):
        first, both = pair_of_lines(tiles, i, rows, moved)
        third, fourth = pair_of_lines(tiles, i + 2, rows, moved)
        total, other = total + first, other + third
        squares, others = squares + both, others + fourth
    store_lanes(state, SUM, b, total + other)
    store_lanes(state, SQUARES, b, squares + others)


@njit(error_model="numpy", forceinline=True)
def pair_of_lines(tiles: Any, i: int, rows: Any, moved: Any) -> Any:
    """The e and eg² of two lines; sums of both lines' eg and eg²."""
    zero = tiles.dtype.type(0)
    floor, second, gap, root, scale = rows
    shifter = tiles.dtype.type(limits(zero)[1])
    value, following = load_lanes(zero, tiles, i, 0), load_lanes(zero, tiles, i + 1, 0)
    e, f, e1, f1, e2, f2 = pole_weights(value, following, floor, second, gap, root, scale, shifter)
    store_lanes(tiles, i, 0, e)
    store_lanes(tiles, i + 1, 0, f)
    store_lanes(moved, i, 0, where_below(second, value, AT_THE_TOP, e2))
    store_lanes(moved, i + 1, 0, where_below(second, following, AT_THE_TOP, f2))
    return e1 + f1, e2 + f2


@njit(forceinline=True)
def tile_result(tiles: Any, moved: Any, at: int, lines: int, state: Any, b: int) -> None:
    """Replace the entries of a tile by the derivative."""
    zero = tiles.dtype.type(0)
    level, pull = load_lanes(zero, state, LEVEL, b), load_lanes(zero, state, PULL, b)
    at_top = load_lanes(zero, state, AT_TOP, b)
    for i in range(at, at + lines):
        e, both = load_lanes(zero, tiles, i, 0), load_lanes(zero, moved, i, 0)
        store_lanes(tiles, i, 0, where_below(both, zero, at_top, fma(level, e, pull * both)))


@njit(forceinline=True)
def write_tile(tiles: Any, at: int, rows: int, out: Any, start: int) -> None:
    """Copy the rows of a tile to ``out``, but for those that stand in for missing ones."""
    n, lanes = out.shape[1], lane_count(out.dtype.type(0))
    if n >= lanes and rows >= lanes:
        for i in range(0, n - lanes + 1, lanes):
            transpose_square(tiles, at + i, 0, out, start, i)
        if n & (lanes - 1):  # the last entries, overlapping with those before
            transpose_square(tiles, at + n - lanes, 0, out, start, n - lanes)
    else:
        for r in range(min(rows, lanes)):
            for i in range(n):
                out[start + r, i] = tiles[at + i, r]
