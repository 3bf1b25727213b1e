"""Branch and bound (Lemma 8): prove F <= 0 on every piece of the scan, or give up.

A cell is a piece, limits low <= (number of coordinates >= 0) <= high for each group, and a range
of theta = v / m for the inner coordinate if there is one.  A cell that is not proved is replaced by
two that cover it: the halves of the piece, of the theta range, or of the range of one count.  What
to split and which multipliers to use are heuristics: they decide whether a proof is found, not its
truth.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from taut._base.compiled import compiled
from taut._softmax.proved_p.dual import Matrix, Problem, best_multiplier
from taut._softmax.proved_p.scan import (
    FIRST,
    VALUE,
    D,
    Y,
    initial_pieces,
    piece_bound,
    point_on,
    scanned_is_inner,
)
from taut._softmax.proved_p.split import NOTHING, THETA, choose_split
from taut._softmax.proved_p.suprema import Vector

_STACK = 300
_SHORT = 15  # a piece halved this often is not halved again because of a positive end


class Stack(NamedTuple):
    """Cells still to prove; the first index of every array is the cell."""

    piece: Matrix
    theta: Matrix
    low: Matrix
    high: Matrix
    depth: Vector  # how often the piece was halved


@njit(nogil=True)
def evaluate(
    problem: Problem,
    stack: Stack,
    cell: int,
    first: float,
    d: float,
    y: float,
    tolerance: float,
    work: Matrix,
) -> tuple[Vector, int]:
    """Return an end (FIRST .. Y) at a point of the cell's piece and the work done."""
    point = point_on(stack.piece[cell], stack.theta[cell], first, d)
    value, nu, y, evaluations = best_multiplier(
        problem, point, y, tolerance, stack.low[cell], stack.high[cell], work
    )
    return np.array([first, d, value, nu, y]), evaluations * (problem.ratio.size + 1)


@njit(nogil=True)
def evaluate_ends(problem: Problem, stack: Stack, cell: int, tolerance: float, work: Matrix) -> int:
    """Set the dual values at both ends of a cell; return the work done."""
    spent = 0
    for end in range(2):
        old = stack.piece[cell, end]
        result, used = evaluate(problem, stack, cell, old[FIRST], old[D], old[Y], tolerance, work)
        stack.piece[cell, end] = result
        spent += used
    return spent


@njit(nogil=True)
def copy_cell(stack: Stack, source: int, destination: int) -> None:
    """Copy one cell of the stack."""
    stack.piece[destination] = stack.piece[source]
    stack.theta[destination] = stack.theta[source]
    stack.low[destination] = stack.low[source]
    stack.high[destination] = stack.high[source]
    stack.depth[destination] = stack.depth[source]


@njit(nogil=True)
def halve_piece(problem: Problem, stack: Stack, cell: int, tolerance: float, work: Matrix) -> int:
    """Replace a cell by the halves of its piece (cells ``cell`` and ``cell + 1``)."""
    a, b = stack.piece[cell, 0].copy(), stack.piece[cell, 1].copy()
    first, d, y = 0.5 * (a[FIRST] + b[FIRST]), 0.5 * (a[D] + b[D]), 0.5 * (a[Y] + b[Y])
    # evaluated on the whole cell, the middle is valid for both halves, and so are the old ends
    middle, spent = evaluate(problem, stack, cell, first, d, y, tolerance, work)
    stack.depth[cell] += 1.0
    copy_cell(stack, cell, cell + 1)
    stack.piece[cell, 1] = middle
    stack.piece[cell + 1, 0] = middle
    if max(a[VALUE], b[VALUE]) > 0.0:  # on a shorter piece more is excluded: try again
        spent += evaluate_ends(problem, stack, cell, tolerance, work)
        spent += evaluate_ends(problem, stack, cell + 1, tolerance, work)
    return spent


@njit(nogil=True)
def split_range(stack: Stack, cell: int, group: int, proposed: float) -> None:
    """Replace a cell by two that share its theta range, or the count range of a group."""
    copy_cell(stack, cell, cell + 1)
    if group == THETA:
        middle = 0.5 * (stack.theta[cell, 0] + stack.theta[cell, 1])
        stack.theta[cell, 1] = middle
        stack.theta[cell + 1, 0] = middle
        return
    count, most = stack.low[cell, group], stack.high[cell, group] - 1.0
    if proposed >= count:  # false for nan
        count = math.floor(min(proposed, most))
    stack.high[cell, group] = count
    stack.low[cell + 1, group] = count + 1.0


def _certify(problem: Problem, theta: Vector, tolerance: float, budget: int) -> tuple[bool, int]:
    """Return (True only if F <= 0 is proved on the whole scan, work done)."""
    groups = problem.start.size - 1
    stack = Stack(
        np.zeros((_STACK, 2, 5)),
        np.zeros((_STACK, 2)),
        np.zeros((_STACK, groups)),
        np.zeros((_STACK, groups)),
        np.zeros(_STACK),
    )
    work = np.zeros((5, problem.ratio.size))
    spent, top = 0, 0
    for piece in initial_pieces(problem):
        if problem.inner > 0.0 and scanned_is_inner(problem, piece):
            continue  # two inner coordinates: impossible at a maximiser
        stack.piece[top], stack.theta[top] = piece, theta
        for k in range(groups):
            stack.high[top, k] = np.sum(problem.weight[problem.start[k] : problem.start[k + 1]])
        spent += evaluate_ends(problem, stack, top, tolerance, work)
        top += 1
    while top > 0:
        cell = top - 1
        if piece_bound(problem, stack.piece[cell]) <= 0.0:
            top -= 1
            continue
        if spent > budget or top + 1 > _STACK - 1:
            return False, spent
        group, proposed = choose_split(
            problem,
            stack.piece[cell],
            stack.theta[cell],
            stack.low[cell],
            stack.high[cell],
            stack.depth[cell],
            work,
        )
        if group == NOTHING:
            positive = max(stack.piece[cell, 0, VALUE], stack.piece[cell, 1, VALUE]) > 0.0
            if positive and stack.depth[cell] >= _SHORT:
                return False, spent  # nothing left to split: K is too small for this relaxation
            spent += halve_piece(problem, stack, cell, tolerance, work)
        else:
            split_range(stack, cell, group, proposed)
            spent += evaluate_ends(problem, stack, cell, tolerance, work)
            spent += evaluate_ends(problem, stack, cell + 1, tolerance, work)
        top += 1
    return True, spent


certify = compiled(_certify)
