"""What to split in a cell that is not proved: heuristics only, with no effect on validity.

If both ends of the piece are fine, or the piece is long, the piece is halved.  Otherwise the
relaxation has a gap at an end: from the convex function of the inner coordinate (split its range),
from a node whose maximisers on both sides of 0 compete (split a count of signs), or from the length
of the piece after all.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from taut._softmax.proved_p.dual import (
    MINUS,
    MINUS_AT,
    PLUS,
    PLUS_AT,
    TAKEN,
    Matrix,
    Point,
    Problem,
    dual_value,
)
from taut._softmax.proved_p.scan import FIRST, NU, VALUE, D, point_on
from taut._softmax.proved_p.suprema import Vector, h_value, interval_supremum

_LONG = 3  # a piece halved fewer times than this is halved before anything else is split
_SHORT = 10  # beyond it, halving no longer comes before counts that may not matter
NOTHING, THETA = -1, -2  # instead of a group to split


@njit(nogil=True)
def theta_gap(problem: Problem, point: Point, nu: float) -> float:
    """Estimate what the bound loses by maximising a convex function over the inner range."""
    t, m = problem.inner, point.first - point.d
    low, high = point.inner_low, point.inner_high
    h_low = h_value(t, problem.p, m, nu * t, low)
    h_high = h_value(t, problem.p, m, nu * t, high)
    h_middle = h_value(t, problem.p, m, nu * t, 0.5 * (low + high))
    bound, _ = interval_supremum(t, problem.p, m, nu * t, low, high)
    return 0.5 * (h_low + h_high) - h_middle + bound - max(h_low, h_high)


@njit(nogil=True)
def least_concave(
    problem: Problem, point: Point, nu: float, low: Vector, high: Vector, work: Matrix
) -> tuple[int, int, float]:
    """Return the group and node with the deepest dip between its two one-sided maximisers.

    Also the sum of all dips, which is about what limits on counts can gain.
    """
    m = point.first - point.d
    group, node, deepest, total = NOTHING, -1, 0.0, 0.0
    for k in range(low.size):
        if low[k] < high[k]:
            for i in range(problem.start[k], problem.start[k + 1]):
                t, middle = problem.ratio[i], 0.5 * (work[PLUS_AT, i] + work[MINUS_AT, i])
                dip = min(work[PLUS, i], work[MINUS, i])
                dip -= h_value(t, problem.p, m, nu * t, middle)
                total += problem.weight[i] * max(dip, 0.0)
                if dip > deepest or group == NOTHING:
                    group, node, deepest = k, i, max(dip, 0.0)
    return group, node, total


@njit(nogil=True)
def choose_split(
    problem: Problem,
    piece: Matrix,
    theta: Vector,
    low: Vector,
    high: Vector,
    depth: float,
    work: Matrix,
) -> tuple[int, float]:
    """Return (NOTHING | THETA | a group, the count at which to split that group)."""
    worst = 0 if piece[0, VALUE] > piece[1, VALUE] else 1
    if piece[worst, VALUE] <= 0.0 or depth < _LONG:
        return NOTHING, 0.0  # both ends are fine, or the piece is long
    nu = piece[worst, NU]
    point = point_on(piece, theta, piece[worst, FIRST], piece[worst, D])
    _, slope = dual_value(problem, point, nu, low, high, work)
    group, node, dips = least_concave(problem, point, nu, low, high, work)
    enough = 0.1 * piece[worst, VALUE]
    if problem.inner > 0.0 and (theta_gap(problem, point, nu) > enough or dips < enough):
        # the range of theta * m is wide because of theta, or because of m
        m_range = abs((piece[0, FIRST] - piece[0, D]) - (piece[1, FIRST] - piece[1, D]))
        by_theta = (theta[1] - theta[0]) * point.m_least
        return (THETA if by_theta > np.max(np.abs(theta)) * m_range else NOTHING), 0.0
    if group == NOTHING or (dips < enough and depth < _SHORT):
        return NOTHING, 0.0
    # the count at which sum_i t_i v_i would meet its target
    width = problem.ratio[node] * (work[PLUS_AT, node] - work[MINUS_AT, node])
    taken = np.sum(work[TAKEN, problem.start[group] : problem.start[group + 1]])
    return group, taken + (slope / width if width > 0.0 else 0.0)
