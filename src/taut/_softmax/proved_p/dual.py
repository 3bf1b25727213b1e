"""Weak duality at one point of the scan (Lemma 6): the dual value and a good multiplier.

The scan fixes v_1 and d = v_1 - m, hence m; the other coordinates are coupled only by
sum_i t_i v_i = target.  For every multiplier nu

    F <= |t_1 d|^p - |v_1|^p + nu * target + max over sign patterns of sum_i sup_v h_i(v)

with h_i(v) = |t_i (v - m)|^p - |v|^p - nu t_i v.  A pattern has between low[k] and high[k]
coordinates >= 0 in group k; nodes with an excluded interval avoid it; an inner coordinate, which is
not among the nodes, runs over an interval.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from taut._softmax.proved_p.suprema import Vector, both_sides, interval_supremum

Matrix: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
# Times the sum of all magnitudes: sums of fewer than 400 terms are off by 5e-14 of them, the terms
# of the scanned coordinate by 2e-12 of themselves or of 1, and the row sums to 1 within 1e-12.
_SLACK = 1e-11
_MULTIPLIER_STEPS = 40
PLUS, PLUS_AT, MINUS, MINUS_AT, TAKEN = range(5)  # rows of the workspace


class Problem(NamedTuple):
    """What stays fixed while one K is tried (t = s / K)."""

    p: float
    scanned: float  # t of the scanned coordinate
    scanned_excluded: float  # its gamma at the known upper bound of the norm
    tail: float  # (1 - s_1) / K
    scale: float  # 1 / K
    ratio: Vector  # t of the nodes
    weight: Vector
    excluded: Vector  # gamma at the known upper bound of the norm; 0 for binned nodes
    start: Indices  # group k is nodes start[k] : start[k + 1]
    inner: float  # t of the inner coordinate (not among the nodes), 0 if there is none


class Point(NamedTuple):
    """A point of the scan; m_least is the least |m| on the piece it belongs to."""

    first: float  # v_1
    d: float  # v_1 - m
    m_least: float
    inner_low: float  # range of the inner coordinate on the piece
    inner_high: float


@njit(nogil=True)
def node_suprema(problem: Problem, point: Point, nu: float, work: Matrix) -> None:
    """Fill the workspace with the suprema of every node and where they are."""
    m = point.first - point.d
    flip = 1.0 if m >= 0.0 else -1.0  # v -> -v makes m >= 0
    up, down = (PLUS, MINUS) if m >= 0.0 else (MINUS, PLUS)
    for i in range(problem.ratio.size):
        sides = both_sides(
            problem.ratio[i],
            problem.p,
            abs(m),
            flip * nu * problem.ratio[i],
            problem.excluded[i],
            point.m_least,
            abs(work[up + 1, i]),
            abs(work[down + 1, i]),
        )
        work[up, i], work[up + 1, i] = sides.plus, flip * sides.plus_at
        work[down, i], work[down + 1, i] = sides.minus, flip * sides.minus_at


@njit(nogil=True)
def take_signs(problem: Problem, low: Vector, high: Vector, work: Matrix) -> None:
    """Choose how many coordinates of each node are >= 0 (row TAKEN): the best allowed pattern."""
    for i in range(problem.ratio.size):  # without limits: the larger supremum
        work[TAKEN, i] = problem.weight[i] if work[PLUS, i] >= work[MINUS, i] else 0.0
    for k in range(low.size):
        begin, stop = problem.start[k], problem.start[k + 1]
        count = np.sum(work[TAKEN, begin:stop])
        while count < low[k] or count > high[k]:  # move the cheapest coordinates to the other side
            short = count < low[k]
            cheapest, best_gain = -1, -np.inf
            for i in range(begin, stop):
                gain = work[PLUS, i] - work[MINUS, i] if short else work[MINUS, i] - work[PLUS, i]
                room = problem.weight[i] - work[TAKEN, i] if short else work[TAKEN, i]
                if room > 0.0 and (gain > best_gain or cheapest < 0):
                    cheapest, best_gain = i, gain
            if short:
                moved = min(problem.weight[cheapest] - work[TAKEN, cheapest], low[k] - count)
            else:
                moved = -min(work[TAKEN, cheapest], count - high[k])
            work[TAKEN, cheapest] += moved
            count += moved


@njit(nogil=True)
def dual_value(
    problem: Problem, point: Point, nu: float, low: Vector, high: Vector, work: Matrix
) -> tuple[float, float]:
    """Return the dual value, rounded outward, and its slope in nu."""
    m = point.first - point.d
    node_suprema(problem, point, nu, work)
    take_signs(problem, low, high, work)
    total, moment, size = 0.0, 0.0, 0.0
    for i in range(problem.ratio.size):
        for side in (PLUS, MINUS):
            many = work[TAKEN, i] if side == PLUS else problem.weight[i] - work[TAKEN, i]
            if many > 0.0:
                value, at = work[side, i], work[side + 1, i]
                total += many * value
                moment += many * problem.ratio[i] * at
                size += many * abs(value)
    if problem.inner > 0.0:
        t = problem.inner
        value, at = interval_supremum(t, problem.p, m, nu * t, point.inner_low, point.inner_high)
        total += value
        moment += t * at
        size += abs(value)
    target = problem.tail * point.first - problem.scale * point.d
    gained = (problem.scanned * abs(point.d)) ** problem.p
    lost = abs(point.first) ** problem.p
    size += gained + lost + 1.0
    size += abs(nu) * (problem.tail * abs(point.first) + problem.scale * abs(point.d))
    value = gained - lost + nu * target + total + _SLACK * size
    if not (size < 1e280 and abs(value) < 1e280):
        return np.inf, target - moment  # overflow or nan proves nothing
    return value, target - moment


@njit(nogil=True)
def best_multiplier(
    problem: Problem,
    point: Point,
    guess: float,
    tolerance: float,
    low: Vector,
    high: Vector,
    work: Matrix,
) -> tuple[float, float, float, int]:
    """Roughly minimise the convex dual value over nu = p |y|^(p-1) sign(y); any nu is valid.

    Returns (value, nu, y, evaluations).  In y the slope is close to linear, whatever p is.
    """
    left, right = -np.inf, np.inf
    left_value = left_slope = left_nu = right_value = right_slope = right_nu = 0.0
    best, best_nu, best_y = np.inf, 0.0, guess
    y = guess
    step = 0.05 * abs(y) + 1e-3
    evaluations = 0
    while evaluations < _MULTIPLIER_STEPS:
        nu = problem.p * math.copysign(abs(y) ** (problem.p - 1.0), y)
        value, slope = dual_value(problem, point, nu, low, high, work)
        evaluations += 1
        if value < best:
            best, best_nu, best_y = value, nu, y
        if slope <= 0.0:
            left, left_value, left_slope, left_nu = y, value, slope, nu
        else:
            right, right_value, right_slope, right_nu = y, value, slope, nu
        if slope == 0.0:
            break
        if left == -np.inf or right == np.inf:  # no bracket yet
            if best < -1.0:  # far below 0 (or unbounded: an infeasible pattern): good enough
                break
            y = left + step if right == np.inf else right - step
            step *= 3.0
            continue
        # the two tangents meet at the least value the minimum can have
        meet = left_value - right_value + right_slope * right_nu - left_slope * left_nu
        least = left_value + left_slope * (meet / (right_slope - left_slope) - left_nu)
        if best - least <= max(tolerance, 0.1 * abs(best)) or right - left <= 1e-12 * abs(right):
            break
        if evaluations % 3 == 2:
            y = 0.5 * (left + right)
        else:
            share = -left_slope / (right_slope - left_slope)
            y = left + min(max(share, 0.03), 0.97) * (right - left)
    return best, best_nu, best_y, evaluations
