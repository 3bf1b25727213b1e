"""Certified upper bound of the induced norm ||M||_p of M = Diag(s) - s s^T (theorem local-p-dual).

M is symmetric, so ||M||_p = ||M||_q with q = max(p, p') > 2.  Riesz-Thorin between 2 and infinity
gives a first upper bound.  A trial K = lower * (1 + excess) is proved by weak duality and branch
and bound: first without second-order conditions, and if that fails down a ladder of trials, where
each proved K sharpens the second-order condition ("at most one coordinate is inner") of the next.
"""

from __future__ import annotations

import numpy as np

from taut._softmax.proved_p.dual import Problem
from taut._softmax.proved_p.nodes import Nodes, make_nodes
from taut._softmax.proved_p.search import certify
from taut._softmax.proved_p.suprema import Vector

_ROUNDING = 1.0 + 1e-13  # every returned bound is inflated by this: see section 6 of the proof
_FINEST = 1e-3  # the smallest excess that is tried
_PLAIN = (_FINEST, 1e-2)  # tried first, without second-order conditions
_SHRINK = 0.45  # from one trial of the ladder to the next; its square root after a failure ...
_GIVE_UP = 0.9  # ... until it is above this
_WIDE = 1e-2  # an excess above this is worth more work
_SMALLEST_Q = 2.002  # below it Riesz-Thorin is within 2^(1 - 2/q) - 1 < 7e-4 of the norm
_LARGEST_Q = 1024.0  # above it rounding of the powers is no longer far below the slack
_BUDGET = 400_000  # pairs of one-dimensional suprema for a row: about 0.1 s, rarely needed
_WIDE_BUDGET = 1_500_000  # as long as the excess is wide
_TRIAL_BUDGET = 600_000  # for each trial: those that need more seldom end well
_PLAIN_BUDGET = 60_000  # for each plain trial
_EXCLUDING = 12  # nodes with an excluded interval; each needs a scan of its own as the inner one
_NEGLIGIBLE = 0.05  # an excluded interval this short is not worth that scan


def tight_upper(s: Vector, p: float, lower: float) -> float:
    """Return an upper bound of ||Diag(s) - s s^T||_p for a probability row s.

    ``lower`` is a lower bound of the norm; it only guides which K is tried, never the validity.
    """
    q = max(p, p / (p - 1.0))
    entries = -np.sort(-s[s > 0.0])
    if entries.size < 2:
        return 0.0
    tail = float(np.sum(entries[1:]))  # 1 - s_1 without cancellation
    norm_inf = 2.0 * float(entries[0]) * tail * _ROUNDING
    if entries.size == 2 or norm_inf < 1e-280:
        return norm_inf + 1e-320  # for two entries this is the norm for every p
    best = norm_inf * (norm_two(entries, norm_inf) / norm_inf) ** (2.0 / q) * _ROUNDING
    if not (_SMALLEST_Q < q < _LARGEST_Q and lower > 0.0):
        return best
    return _improve(entries, tail, q, float(lower), best)


def norm_two(entries: Vector, norm_inf: float) -> float:
    """Bound ||M||_2 for descending entries.

    It is the root x in [s_2, s_1] of the increasing function sum s_i / (s_i - x).  The upper end
    moves only when the sign of the sum is certain despite rounding.
    """
    low, high = float(entries[1]), min(float(entries[0]), norm_inf)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        terms = entries / (entries - middle)
        if np.sum(terms) > 1e-12 * np.sum(np.abs(terms)):
            high = middle
        else:
            low = middle
    return high * _ROUNDING


def _improve(entries: Vector, tail: float, q: float, lower: float, best: float) -> float:
    """Return the least K that could be proved, or ``best``."""
    nodes = make_nodes(entries[1:])
    first = float(entries[0])
    for excess in _PLAIN:
        bound = lower * (1.0 + excess)
        if bound >= best:
            break
        proved, _ = _prove(nodes, first, tail, q, bound, np.inf, excess, _PLAIN_BUDGET)
        if proved:
            best = bound * _ROUNDING
            break
    spent, shrink = 0, _SHRINK
    while best > lower * (1.0 + 1.01 * _FINEST) and shrink < _GIVE_UP:
        budget = (_WIDE_BUDGET if best > lower * (1.0 + _WIDE) else _BUDGET) - spent
        if budget <= 0:
            break
        budget = min(budget, _TRIAL_BUDGET)
        excess = max(_FINEST, shrink * (best / lower - 1.0))
        bound = lower * (1.0 + excess)
        proved, left = _prove(nodes, first, tail, q, bound, best, excess, budget)
        spent += budget - left
        if proved:
            best = bound * _ROUNDING
        else:
            shrink = shrink**0.5
    return best


def _prove(
    nodes: Nodes,
    first: float,
    tail: float,
    q: float,
    bound: float,
    known: float,
    excess: float,
    budget: int,
) -> tuple[bool, int]:
    """Try to prove norm <= bound, given norm <= known; return (proved, budget left).

    ``known`` = inf switches the second-order condition off.
    """
    ratio = nodes.entry / bound
    if not ratio[0] < 1.0 - 1e-6:
        return False, budget
    power = q / (q - 2.0)
    gamma = (nodes.entry / known) ** power
    gamma[min(_EXCLUDING, nodes.start[-1]) :] = 0.0
    gamma[gamma < _NEGLIGIBLE] = 0.0
    problem = Problem(
        p=q,
        scanned=first / bound,
        scanned_excluded=min(first / known, 1.0) ** power,
        tail=tail / bound,
        scale=1.0 / bound,
        ratio=ratio,
        weight=nodes.weight,
        excluded=gamma * (1.0 - 1e-9),
        start=nodes.start,
        inner=0.0,
    )
    tolerance = 0.02 * q * excess
    proved, spent = certify(problem, np.zeros(2), tolerance, budget)
    budget -= spent
    for k in np.flatnonzero(gamma):  # the cases "a coordinate of node k is inner, no other one is"
        if not proved or budget <= 0:
            return False, budget
        weight = nodes.weight.copy()
        weight[k] -= 1.0
        wide = gamma[k] * (1.0 + 1e-9)
        theta = np.array([-wide / (1.0 - wide), wide / (1.0 + wide)])
        case = problem._replace(weight=weight, inner=float(ratio[k]))
        proved, spent = certify(case, theta, tolerance, budget)
        budget -= spent
    return proved, budget
