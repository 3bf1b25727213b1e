"""The Triton kernel: from queries and keys to the numbers of every row of attention.

A program takes some rows and walks over the keys in blocks, once to survey the rows and then once
for each step of the secular equation (one or two, seldom three). Scores are computed anew in every
walk, so that no more than a block of them exists. Importing this module imports triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from taut.models._gpu_rows.triton_arithmetic import (
    NOTHING,
    first_guess,
    improved,
    leading,
    plus,
    pole_sums,
    survey,
)
from taut.models.masks import HIDDEN

# One line of the output for each.
NUMBERS = ("top", "lowest", "seen", "log_sum", "mean", "first", "leader", "one", "two", "broken")

VISIBLE = tl.constexpr(HIDDEN)  # scores up to here are masks
STEPS = tl.constexpr(30)  # never more than 3 seen
TOLERANCE = tl.constexpr(2.0**-27)  # of the secular root
TIED = tl.constexpr(2.0**-24)  # so near to e₂ = 1 the middle of (e₂, 1) is the root in float32
NO_BIAS, ADDED, BOOLEAN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _scores(
    query, key, bias, rows, columns, real, last, factor,
    q_row, q_width, k_row, k_width, b_row, b_column, keys,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Scores of a block, -inf where a key is hidden or the score is NaN or +inf; where it is so."""
    z = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    for begin in tl.static_range(0, WIDTH, CHUNK):
        width = begin + tl.arange(0, CHUNK)
        inside = width < WIDTH
        q = tl.load(
            query + rows[:, None] * q_row + width[None, :] * q_width,
            mask=real[:, None] & inside[None, :], other=0.0,
        )  # fmt: skip
        k = tl.load(
            key + columns[None, :] * k_row + width[:, None] * k_width,
            mask=(columns < keys)[None, :] & inside[:, None], other=0.0,
        )  # fmt: skip
        # Half precision is widened without loss. TF32 would round the inputs to 11 bits.
        z = tl.dot(q.to(tl.float32), k.to(tl.float32), z, input_precision="ieee")
    z = z * factor
    seen = real[:, None] & (columns[None, :] <= last[:, None])
    if BIAS != NO_BIAS:
        place = bias + rows[:, None] * b_row + columns[None, :] * b_column
        if BIAS == ADDED:
            z += tl.load(place, mask=seen, other=0.0).to(tl.float32)
        else:
            seen = seen & (tl.load(place, mask=seen, other=0) != 0)
    # Comparisons with NaN are false.
    bad = seen & ~(z < float("inf"))
    return tl.where(seen & (z > VISIBLE) & (z < float("inf")), z, NOTHING), bad


@triton.jit
def _begin(top, ties, second, total, squares):
    """e₂, δ = 1 − e₂, a guess of g, the root X of rows that need no step, and which rows do."""
    some = second > NOTHING
    depth = tl.where(some, second.to(tl.float64) - top, 0.0)
    runner_up = tl.where(some, tl.exp(depth), 0.0)
    series = -depth * (1.0 + depth * (1 / 2 + depth * (1 / 6 + depth * (1 / 24))))
    room = tl.where(depth > -1e-3, series, 1.0 - runner_up)
    g = first_guess(total.to(tl.float64), squares.to(tl.float64), runner_up, room)
    # M has the eigenvalue s₁ where the largest score is there twice, and is 0 where it is alone.
    x = tl.where(ties > 1, 1.0, tl.where(some, 1.0 - 0.5 * room, 0.0))
    working = (ties == 1) & some & (room > TIED)
    return runner_up, room, tl.where(working, g, 1.0).to(tl.float32), x, working


@triton.jit
def _write(
    out, size, real, top, ties, lowest, seen, first, leader, total, mean, second, runner_up, x, bad
):  # fmt: skip
    """The numbers of the rows in the order of NUMBERS; those of a broken row are NaN."""
    tail = tl.where(seen > 0, ties - 1, 0) + runner_up * total
    whole = 1.0 + tail
    # log(1 + T) for small T: the rounding of 1 + T is the same in both and cancels (Kahan).
    rest = whole - 1.0
    log_sum = tl.where(rest > 0.0, tl.log(whole) * (tail / tl.where(rest > 0.0, rest, 1.0)), tail)
    depth = tl.where(second > NOTHING, second.to(tl.float64) - top, 0.0)
    mean = runner_up * (mean + total * depth) / whole
    weight = tl.exp(tl.where(first > NOTHING, first.to(tl.float64) - top, -1e4)) / whole
    unknown = tl.where(bad > 0, float("nan"), 0.0)
    tl.store(out, top + unknown, mask=real)
    tl.store(out + size, lowest + unknown, mask=real)
    tl.store(out + 2 * size, seen + unknown, mask=real)
    tl.store(out + 3 * size, log_sum + unknown, mask=real)
    tl.store(out + 4 * size, mean + unknown, mask=real)
    tl.store(out + 5 * size, weight + unknown, mask=real)
    tl.store(out + 6 * size, leader + unknown, mask=real)
    tl.store(out + 7 * size, 2.0 * (tail / whole) / whole + unknown, mask=real)
    tl.store(out + 8 * size, x / whole + unknown, mask=real)
    tl.store(out + 9 * size, (bad > 0).to(tl.float32), mask=real)


@triton.jit
def rows_kernel(
    query, key, bias, last_key, out, factor,
    q_batch, q_head, q_row, q_width, k_batch, k_head, k_row, k_width,
    b_batch, b_head, b_row, b_column, l_batch, l_row,
    heads, group, queries, keys, blocks, size,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the numbers of ROWS rows of one head to the lines of ``out``, of ``size`` each."""
    program = tl.program_id(0).to(tl.int64)  # offsets may not fit into 32 bits
    head, batch = (program // blocks) % heads, program // blocks // heads
    rows = (program % blocks) * ROWS + tl.arange(0, ROWS)
    real = rows < queries
    last = tl.load(last_key + batch * l_batch + rows * l_row, mask=real, other=-1)
    last = tl.minimum(last, keys - 1)
    end = tl.max(last, 0) + 1
    query += batch * q_batch + head * q_head
    key += batch * k_batch + (head // group) * k_head
    bias += batch * b_batch + head * b_head
    zero, none = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.int32)
    top, second, first, lowest = zero + NOTHING, zero + NOTHING, zero + NOTHING, zero - NOTHING
    ties, seen, broken, working, leader = none, none, none, none > 0, none.to(tl.int64)
    total, mean, squares, g = zero.to(tl.float64), zero.to(tl.float64), zero, zero + 1.0
    rough, runner_up, room, x = zero, total, total, total
    step, pending = 0, 2
    # The two kinds of walks share one loop: were the scores computed by two pieces of code, a
    # compiler could round them differently, and the largest would not be found again.
    while pending > 0:
        poles, nearer = none, zero
        sum_0, sum_1, near, lost_0, lost_1, lost = zero, zero, zero, zero, zero, zero
        for start in range(0, end, COLUMNS):
            columns = start + tl.arange(0, COLUMNS).to(tl.int64)
            z, bad = _scores(
                query, key, bias, rows, columns, real, last, factor, q_row, q_width, k_row,
                k_width, b_row, b_column, keys, WIDTH, CHUNK, BIAS,
            )  # fmt: skip
            if step == 0:
                broken += tl.sum(bad.to(tl.int32), 1)
                seen += tl.sum((z > NOTHING).to(tl.int32), 1)
                lowest = tl.minimum(lowest, tl.min(tl.where(z > NOTHING, z, float("inf")), 1))
                first = tl.maximum(first, tl.max(tl.where(columns[None, :] == 0, z, NOTHING), 1))
                leader = leading(z, columns, keys, top, leader)
                top, ties, second, rough, squares = survey(z, top, ties, second, rough, squares)
            else:
                at_second, part_0, part_1, part, nearer_part = pole_sums(z, second, g)
                poles += at_second
                nearer += nearer_part
                sum_0, lost_0 = plus(sum_0, lost_0, part_0)
                sum_1, lost_1 = plus(sum_1, lost_1, part_1)
                near, lost = plus(near, lost, part)
        if step == 0:
            runner_up, room, g, x, working = _begin(top, ties, second, rough, squares)
        else:
            total = poles + (sum_0.to(tl.float64) + lost_0)
            mean = sum_1.to(tl.float64) + lost_1
            following, left = improved(
                g.to(tl.float64), poles, near.to(tl.float64) + lost, nearer, runner_up, room
            )
            x = tl.where(working, runner_up * (1.0 + following), x)
            working = working & (left > TOLERANCE)
            g = tl.where(working, following, 1.0).to(tl.float32)
        step += 1
        # The second walk is for all rows: it is where their sums are found.
        pending = tl.maximum(tl.sum(working.to(tl.int32), 0), 2 - step) * (step < STEPS)
    x = tl.where(working, float("nan"), x)  # not solved
    _write(
        out + (batch * heads + head) * queries + rows, size, real, top, ties, lowest, seen, first,
        leader, total, mean, second, runner_up, x, broken,
    )  # fmt: skip
