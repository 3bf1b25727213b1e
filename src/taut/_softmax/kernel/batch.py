"""Scalar work of the compiled kernel, in float64 and vectorised across the rows of a batch.

Short rows would drown in scalar work done row by row. All quantities of a row are scaled by
σ⁻¹ = 2^−K with K ≈ log₂ e₂ − LIFT, so that nothing underflows: E = e/σ, and with X and T scaled
alike the secular equation reads (1 − σX) F(X) = 1, F(X) = Σ E/(X − E).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import assume_width, plus, select, times_power, wide_vectors
from taut._softmax.kernel.arithmetic import LOG2E, exponential, limits
from taut._softmax.kernel.found import FOUND_E2, FOUND_GAP, FOUND_SECOND, FOUND_TAIL, FOUND_TOP

LIFT = 20.0  # e₂ is scaled to about 2^20: products of small entries stay normal in float32
DEEPEST = -900.0  # exponents of e₂ below this underflow in float64 whatever the scale
BATCH = 8192  # entries per batch
ROWS = 128  # most rows per batch
WIDTH = ROWS + 8  # length of the state's lines: powers of two compete for places in the cache
TOLERANCE = 0.25  # of the root, in units of eps
PASSES = 50  # never more than 3 seen; usually 1 for float32 and 2 for float64

# The state of a batch: one line for each quantity, one column for each row of logits.
QUANTITIES = 19
(
    TOP,  # largest logit
    SECOND,  # largest of the others
    TIES,  # how many logits equal the largest
    LIVE,  # 1 while the row still needs work, else 0
    SHIFTER,  # parameters of `exponential`
    FLOOR,
    SIGMA_1,  # σ = SIGMA_1·SIGMA_2, for results in the subnormal range
    SIGMA_2,
    E2,  # the second largest exponential
    TAIL,  # T
    SQUARES,  # ΣE²
    X0,  # where the equation is expanded; later this line and the next ones hold results
    GAP,  # X0 − E2
    A0,  # coefficients of the expansion
    A1,
    A2,
    A3,
    ROOT,  # the unscaled root
    ABOVE,  # X − E2, with all its digits next to a tie
) = range(QUANTITIES)


@njit(error_model="numpy")
def scalings(state: Any, rows: int, scale: float, scale_high: Any, ln2_low: Any) -> float:
    """σ, E2 and the parameters of the exponential; how many rows do not underflow."""
    wide_vectors()
    assume_width(state, WIDTH)
    to_input = type(scale_high)
    eps, magic, depth, _ = limits(scale_high)
    shift = 1.5 * 2.0**52
    alive = 0.0
    for b in range(rows):
        top, second = state[TOP, b], state[SECOND, b]
        z2 = scale * (second - top)
        k = np.rint(max(z2, DEEPEST) * LOG2E) - LIFT
        k1 = max(k, -1000.0)
        shifter = to_input(magic - k)
        # Strictly below the second largest, also where logits are too coarse for the subtraction.
        below = to_input(second - abs(second) * eps)
        lower = to_input(second - depth / scale)
        floor = select(lower < below, lower, below)
        # At the floor the scaled weight must still be normal, or its exponent would wrap around.
        deepest = 95.0 if depth == 40.0 else 700.0
        usable = select(scale * (second - floor) < deepest, 1.0, np.nan)
        live = select(z2 >= DEEPEST, 1.0, 0.0)
        alive = plus(alive, live)
        state[LIVE, b] = live
        state[SIGMA_1, b] = times_power(1.0, k1 + shift) * select(live > 0.0, usable, 1.0)
        state[SIGMA_2, b] = times_power(1.0, (k - k1) + shift)
        state[SHIFTER, b] = shifter
        state[FLOOR, b] = floor
        state[E2, b] = exponential(
            to_input(second), to_input(top), scale_high, ln2_low, shifter, floor
        )
    return alive


@njit
def dead_rows(x: Any, start: int, state: Any, rows: int) -> None:
    """Rows whose others underflow or that have none; NaN where an entry is NaN or +inf."""
    for b in range(rows):
        if state[LIVE, b] == 0.0:
            bad = state[TOP, b] == np.inf
            for i in range(x.shape[1]):
                bad |= x[start + b, i] != x[start + b, i]
            state[TAIL, b] = np.nan if bad else 0.0
            if state[TOP, b] == -np.inf:  # masked altogether
                state[TIES, b] = 1.0


@njit(error_model="numpy", fastmath={"contract"})
def first_guess(state: Any, rows: int, eps: float) -> None:
    """One Newton step from a lower bound on a model of the equation.

    The pole E2 is exact; the rest of F is modelled by (q₁ + q₂/(X − c))/X, q₁ = ΣE, q₂ = ΣE², with
    c the geometric mean of q₂/q₁ and E2. Rows with e₂ = 1 need no root; rows with e₂ within an ulp
    or so of 1 need no better one than this: X lies in the upper half of (e₂, 1).
    """
    wide_vectors()
    assume_width(state, WIDTH)
    for b in range(rows):
        e, sigma = state[E2, b], state[SIGMA_1, b] * state[SIGMA_2, b]
        tail, squares = state[TAIL, b], state[SQUARES, b]
        q1 = max(tail - e, 0.0)
        q2 = max(squares - e * e, 0.0)
        c = min(np.sqrt(q2 * e / (q1 + 1e-30)), e)
        # X ≥ 2E2/(1 + σE2) from E2 alone, and X ≥ (ΣE²/T + T)/(1 + σT) by Jensen.
        d1, d2 = 1.0 + sigma * e, tail * (1.0 + sigma * tail)
        x = max(2.0 * e * d2, (squares + tail * tail) * d1) / (d1 * d2)
        u = x - c
        v = 1.0 / (x * u)  # 1/x = uv, 1/u = xv
        rest = (q1 * u + q2) * v
        slope_rest = -(rest * u + q2 * x * v) * v
        m = e + (x - e) * rest
        f = (1.0 - sigma * x) * m - (x - e)
        slope = (1.0 - sigma * x) * (rest + (x - e) * slope_rest) - sigma * m - 1.0
        room = 1.0 - sigma * e
        tied = state[TIES, b] > 1.0
        live = (state[LIVE, b] > 0.0) & (tail > 0.0)
        state[X0, b] = max(x - f / slope, x)
        state[LIVE, b] = select(live & (not tied) & (room > 1.5 * eps), 1.0, 0.0)
        state[ROOT, b] = select(tied, 1.0, select(live, 1.0 - 0.25 * room, 0.0))
        state[ABOVE, b] = 0.0  # of rows whose root is not searched, whatever was here before


@njit(error_model="numpy", fastmath={"contract"})
def solve_expansion(state: Any, first: int, last: int, tolerance: float) -> float:
    """X = X0 + gap·y from the expansion of the tail and the exact pole E2; rows still to do.

    ΣEρ/(1 + yρ) over the tail is replaced by its Taylor polynomial. If the terms left out may
    matter, X0 moves (by Newton's step at least, which stays below the root) and the row stays live.
    """
    wide_vectors()
    assume_width(state, WIDTH)
    left = 0.0
    for b in range(first, last):
        e, sigma = state[E2, b], state[SIGMA_1, b] * state[SIGMA_2, b]
        x0, gap = state[X0, b], state[GAP, b]
        a0 = (gap * (state[TAIL, b] - e) + (state[A0, b] - e * e)) / x0
        a1, a2, a3 = state[A1, b] - e, state[A2, b] - e, state[A3, b] - e
        q, h = 1.0 - sigma * x0, sigma * gap
        f0 = e + a0
        newton = max((q * f0 - gap) / (h * f0 + q * (e + a1)), -0.75)
        y, slope, step, before = newton, 1.0, 0.0, 0.0
        for i in range(2):
            p = a0 - y * (a1 - y * (a2 - y * a3))
            m = e + (1.0 + y) * p
            f = (q - h * y) * m - gap * (1.0 + y)
            if i == 0:  # the slope hardly changes, and a division is saved
                slope_p = -(a1 - y * (2.0 * a2 - y * 3.0 * a3))
                slope = (q - h * y) * (p + (1.0 + y) * slope_p) - h * m - gap
                inverse = 1.0 / slope
            before, step = step, f * inverse
            y -= step
        near = abs(y) < 0.5
        left_out = abs(q * a3) * y * y * y * y + abs(slope * before * step)
        done = near & (gap * left_out <= tolerance * x0 * abs(slope))
        x = x0 + gap * select(near, y, newton)
        working = state[LIVE, b] > 0.0
        again = select(working & (not done), 1.0, 0.0)
        state[X0, b] = select(working, x, x0)
        above = gap + gap * select(near, y, newton)
        state[ABOVE, b] = select(working, above, state[ABOVE, b])
        root = x * state[SIGMA_1, b] * state[SIGMA_2, b]
        state[ROOT, b] = select(working, root, state[ROOT, b])
        state[LIVE, b] = again
        left = plus(left, again)
    return left


@njit(error_model="numpy", fastmath={"contract"})
def write(
    state: Any, rows: int, at: int, scale: float, ceiling: float, error: Any, out: Any
) -> float:
    """λ‖M‖₁ = 2λT/Z² and λ‖M‖₂ = λX/Z of the rows, each with its sides; NaN where not solved.

    Returns the number of rows with sides that are not in order, which are those with NaN.

    The six lines of ``out`` are lower, value and upper of the one, then of the other. ``ceiling``
    is λ/2, which neither exceeds, rounded up to the output's precision; ``error`` is how far
    rounding may have gone, relative and absolute.
    """
    wide_vectors()
    assume_width(state, WIDTH)
    relative, absolute = error
    wrong = 0.0
    for b in range(rows):
        tail = (state[TIES, b] - 1.0) + state[TAIL, b] * state[SIGMA_1, b] * state[SIGMA_2, b]
        share = 1.0 / (1.0 + tail)
        one = scale * (2.0 * tail * share * share)
        two = select(state[LIVE, b] > 0.0, np.nan, scale * (state[ROOT, b] * share))
        one, two = select(one > ceiling, ceiling, one), select(two > ceiling, ceiling, two)
        error_1, error_2 = one * relative + absolute, two * relative + absolute
        above_1, above_2 = one + error_1, two + error_2
        below_1 = select(one > error_1, one - error_1, 0.0)
        below_2 = select(two > error_2, two - error_2, 0.0)
        above_1 = select(above_1 > ceiling, ceiling, above_1)
        above_2 = select(above_2 > ceiling, ceiling, above_2)
        ordered_1 = (below_1 <= one) & (one <= above_1)
        ordered_2 = (below_2 <= two) & (two <= above_2)
        wrong = plus(wrong, select(ordered_1 & ordered_2, 0.0, 1.0))
        state[X0, b], state[GAP, b], state[A0, b] = below_1, one, above_1
        state[A1, b], state[A2, b], state[A3, b] = below_2, two, above_2
    copy_lines(state, X0, rows, out, at)
    return wrong


@njit(forceinline=True)
def copy_lines(state: Any, line: int, rows: int, out: Any, at: int) -> None:
    """Copy as many lines of the state as ``out`` has, from ``line`` on, to its columns.

    By itself: a loop that computed and wrote them would first ask whether any two overlap.
    """
    for i in range(out.shape[0]):
        columns = out[i, at : at + rows]
        for b in range(rows):
            columns[b] = state[line + i, b]


@njit(error_model="numpy")
def hand_over(state: Any, rows: int, at: int, found: Any) -> None:
    """Keep for the derivative what is known of the rows; nothing where ``found`` has no columns."""
    wide_vectors()
    assume_width(state, WIDTH)
    if found.shape[1] == 0:
        return
    for b in range(rows):
        top, second, unit = state[TOP, b], state[SECOND, b], 1.0 / state[E2, b]
        gap, tail = state[ABOVE, b] * unit, state[TAIL, b] * unit
        e2 = state[E2, b] * state[SIGMA_1, b] * state[SIGMA_2, b]
        # Zeros where a row has no second entry: it needs care, and NaN would not equal itself.
        known = (abs(top) < np.inf) & (abs(second) < np.inf) & (abs(tail) < np.inf)
        known &= (abs(gap) < np.inf) & (abs(e2) < np.inf)
        state[X0 + FOUND_TOP, b] = select(known, top, 0.0)
        state[X0 + FOUND_SECOND, b] = select(known, second, 0.0)
        state[X0 + FOUND_GAP, b] = select(known, gap, 0.0)
        state[X0 + FOUND_TAIL, b] = select(known, tail, 0.0)
        state[X0 + FOUND_E2, b] = select(known, e2, 0.0)
    copy_lines(state, X0, rows, found, at)
