"""Bifurcations: where branches of logit equilibria cross, and the first points of those that cross.

Where branches cross, the Jacobian of the equations in (strategies, λ) loses rank, and with it the
square matrix that has the tangent as one more row. Its smallest singular value is therefore looked
at along a branch: unlike the sign of its determinant it also shows where two directions are lost at
once, as symmetric games do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut.games._solvers.branch import SHARP, Place
from taut.games._solvers.logit_equations import Equations, Vector

SINGULAR = 1e-4  # singular values at a bifurcation, as near as the search for it comes
LOST = 1e-3  # singular values of all the directions that are lost there
AWAY = (0.03, 0.01)  # lengths of the first step along a branch that crosses
TRIES = 24  # random directions where more than one is lost
GOLDEN = (np.sqrt(5) - 1) / 2


class BranchPoint(NamedTuple):
    """A place of a branch, and orthogonal directions, each a row, that other branches may take."""

    place: Place
    directions: Vector


def branch_points(equations: Equations, places: list[Place]) -> list[BranchPoint]:
    """Where other branches cross this one."""
    smallest = [_singular(equations, place)[0][-1] for place in places]
    found: list[BranchPoint] = []
    for k in range(1, len(places) - 1):
        flipped = places[k].orientation[0] != places[k + 1].orientation[0]
        lowest = smallest[k - 1] > smallest[k] <= smallest[k + 1] and smallest[k] < 0.5
        if not (flipped or lowest):
            continue
        # A change of orientation was approached by short steps already.
        at = places[k] if smallest[k] < SINGULAR else _lowest(equations, places[k - 1 : k + 2])
        values, directions = _singular(equations, at)
        if values[-1] >= SINGULAR:
            continue
        lost = directions[values < LOST]
        if all(equations.shift(at.point, other.place.point) > 1e-3 for other in found):
            found.append(BranchPoint(at, lost))
    return found


def crossing(equations: Equations, at: BranchPoint, rng: np.random.Generator) -> list[Vector]:
    """Points a short way along the branches that cross, as far as Newton finds them."""
    lost = at.directions
    if len(lost) > 1:
        mixtures = rng.normal(size=(TRIES, len(lost)))
        lost = np.concatenate([lost, mixtures @ lost])
    found: list[Vector] = []
    for direction in lost:
        unit = direction / np.sqrt(at.place.weight @ direction**2)
        for side in (unit, -unit):
            for length in AWAY:
                point = _aside(equations, at.place, side, length)
                if point is None:
                    continue
                if all(equations.shift(point, other) > 1e-6 for other in found):
                    found.append(point)
                break
    return found


def _singular(equations: Equations, at: Place) -> tuple[Vector, Vector]:
    """Singular values of the bordered Jacobian, largest first, and their right vectors as rows."""
    matrix = equations.bordered(at.point, at.weight * at.tangent)
    _, values, directions = np.linalg.svd(matrix)
    return values, directions


def _lowest(equations: Equations, places: list[Place]) -> Place:
    """The place with the smallest singular value between the first and the last, by golden section.

    Near a bifurcation that value is V-shaped, so that the section converges.
    """
    first, middle, last = places
    best = (float(_singular(equations, middle)[0][-1]), middle)

    def value(t: float) -> float:
        nonlocal best
        side, start, end = (t, first, middle) if t < 1 else (t - 1, middle, last)
        guess = equations.normalised((1 - side) * start.point + side * end.point)
        border = start.weight * start.tangent
        point, _, good = equations.correct(guess, border, SHARP)
        if not good:
            return np.inf
        try:
            at = Place(point, *equations.tangent(point, border))
        except np.linalg.LinAlgError:
            return np.inf
        found = float(_singular(equations, at)[0][-1])
        best = min(best, (found, at), key=lambda pair: pair[0])
        return found

    low, high = 0.0, 2.0
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    while best[0] > 0.1 * SINGULAR and high - low > 1e-7:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = value(right)
    return best[1]


def _aside(equations: Equations, at: Place, direction: Vector, length: float) -> Vector | None:
    """A solution on the plane at this distance in a direction, by Newton's method."""
    point = equations.normalised(at.point + length * direction)
    normal = at.weight * direction
    for _ in range(15):
        right = np.append(-equations.defect(point), 0.0)
        try:
            change = np.linalg.solve(equations.bordered(point, normal), right)
        except np.linalg.LinAlgError:
            return None
        if not np.abs(change).max() < 1:
            return None
        point = equations.normalised(point + change)
        if np.abs(change).max() < SHARP * (1 + point[-1]):
            moved = np.sqrt(at.weight @ (point - at.point) ** 2)
            return point if length / 3 < moved < 3 * length and point[-1] > 0 else None
    return None
