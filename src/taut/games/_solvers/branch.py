"""Branches of logit equilibria, followed by pseudo-arclength continuation.

The logit equilibria of a game for all λ = 1/τ form curves; the principal branch starts with the
uniform strategies at λ = 0 (McKelvey and Palfrey 1995). Curves may fold back, so λ is no parameter
of them. At an exact symmetry the branch that keeps the symmetry is followed, so that the answer
does not depend on how strategies are labelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from taut.games._solvers.logit_equations import MAX_CORRECTION, Equations, Vector

MAX_SHIFT = 0.2  # largest total variation that a strategy may change by in a step
MAX_TURN = 0.25  # sharpest turn of the unit tangent in a step
CROSSING = 1e-5  # times √(1 + λ): the short step by which bifurcations are crossed
SHORTEST = 1e-11  # below, the branch is given up
ROUGH, SHARP = 1e-6, 1e-11


class Followed(NamedTuple):
    """Where following a branch ended, in how many steps, and whether at the wanted λ."""

    point: Vector
    steps: int
    reached: bool


class Place(NamedTuple):
    """A point of the branch with its unit tangent, the weights of length, and the orientation."""

    point: Vector
    tangent: Vector
    weight: Vector
    orientation: Any  # sign and log |det| of the bordered Jacobian


class Traced(NamedTuple):
    """The points of a branch in order, in how many steps, and why it ended.

    ``end`` is "temperature" (the wanted λ), "uniform" (λ so small that only the principal branch is
    there), "closed" (back at the start), "lost", "budget" or "stopped".
    """

    places: list[Place]
    steps: int
    end: str


def follow(
    equations: Equations,
    target: float,
    unique_below: float,
    max_steps: int,
    watch: Callable[[int, float], object] | None = None,
) -> Followed:
    """The principal branch to its first point with λ = ``target``; unique for λ < unique_below."""
    if target < unique_below:
        point = equations.iterate(target, (target / unique_below) ** 2)
        return Followed(point, 0, reached=True)
    # Below unique_below there is nothing but the branch: begin there. It has no fold: λ rises.
    point = equations.iterate(0.9 * unique_below, 0.81)
    up = np.zeros(len(point))
    up[-1] = 1.0
    at = Place(point, *equations.tangent(point, up))
    found = trace(equations, at, target, max_steps, watch=watch)
    point = found.places[-1].point
    if found.end == "lost":
        return _stuck(equations, point, target, found.steps)
    return Followed(point, found.steps, reached=found.end == "temperature")


def trace(
    equations: Equations,
    at: Place,
    target: float,
    max_steps: int,
    *,
    longest: float = math.inf,
    least: float = -math.inf,
    watch: Callable[[int, float], object] | None = None,
) -> Traced:
    """The branch from a place in the direction of its tangent, to λ = ``target`` or ``least``.

    ``longest`` is the largest length of a step.
    """
    step = min(0.1, longest)
    places = [at]
    if at.point[-1] >= target and at.tangent[-1] > 0:
        return Traced(places, 0, "temperature")
    for steps in range(1, max_steps + 1):
        if watch is not None and watch(steps, at.point[-1] / target):
            return Traced(places, steps, "stopped")
        if step < SHORTEST:
            return Traced(places, steps, "lost")
        ahead = (target - at.point[-1]) / at.tangent[-1] if at.tangent[-1] > 0 else math.inf
        last = ahead <= step
        length = ahead if last else step
        found = _advance(equations, at, length, target if last else None)
        if isinstance(found, float):
            step = found
            continue
        new, growth = found
        # λ rises where the branch first reaches the target; a step that ends beyond it, or turns
        # back in between, may hide that first time.
        rise, fall = length * at.tangent[-1], length * new.tangent[-1]
        hidden = rise > 0 > fall and target <= _peak(at.point[-1], rise, new.point[-1], fall)
        if (last and fall <= 0) or new.point[-1] > target or hidden:
            step = length / 2
            continue
        if last:
            new = new._replace(point=equations.polish(new.point))
            return Traced([*places, new], steps, "temperature")
        places.append(new)
        if new.point[-1] < least:
            return Traced(places, steps, "uniform")
        if len(places) > 3 and _meets(places[0], at, new):
            return Traced(places, steps, "closed")
        at, step = new, min(length * growth, longest)
    return Traced(places, max_steps, "budget")


def _meets(start: Place, at: Place, new: Place) -> bool:
    """Whether the step from ``at`` to ``new`` passed the place where the branch began."""
    weight = start.weight
    back, on = start.point - at.point, new.point - at.point
    length = float(weight @ on**2)
    along = float(weight @ (back * on)) / length
    aside = float(weight @ (back - along * on) ** 2)
    return bool(
        0 < along <= 1 and aside < 0.05 * length and weight @ (start.tangent * new.tangent) > 0.5
    )


def _advance(
    equations: Equations, at: Place, length: float, target: float | None
) -> tuple[Place, float] | float:
    """A step of this length, to the target λ if there is one, and how far the next may go.

    If the new point fails a test, the length to try instead.
    """
    shorter = length / 2
    border = at.weight * at.tangent
    normal = border
    guess = equations.normalised(at.point + length * at.tangent)
    if target is not None:
        guess[-1] = target
        normal = np.zeros(len(guess))
        normal[-1] = 1.0
    if guess[-1] < 0 or equations.shift(at.point, guess) > MAX_SHIFT:
        return shorter
    # Short steps mean a sharp bend or a bifurcation, where a loose point would drift off.
    point, first, good = equations.correct(guess, normal, ROUGH if length > 0.03 else SHARP)
    if not good or equations.shift(at.point, point) > MAX_SHIFT:
        return shorter
    try:
        new = Place(point, *equations.tangent(point, border))
    except np.linalg.LinAlgError:
        return shorter
    turned = new.tangent / np.sqrt(at.weight @ new.tangent**2)
    turn = float(np.sqrt(at.weight @ (turned - at.tangent) ** 2))
    if not turn <= MAX_TURN:
        return shorter
    flipped = new.orientation[0] != at.orientation[0]
    crossing = _before_crossing(at, new, length, flipped=flipped)
    if crossing is not None:
        return crossing
    if flipped and turn > 0.1 * math.sqrt(length):
        return shorter
    # A correction grows like length² and a turn like length: aim below both limits.
    growth = min(
        math.sqrt(0.5 * MAX_CORRECTION / max(first, 1e-12)), 0.7 * MAX_TURN / max(turn, 1e-12)
    )
    return new, min(max(growth, 0.5), 3.0)


def _before_crossing(at: Place, new: Place, length: float, *, flipped: bool) -> float | None:
    """The length of a step to just before a bifurcation, or across it; None where there is none.

    The orientation changes across a bifurcation, but also when a step jumps to another branch, as
    past the sharp bend of a nearly symmetric game. Only the first looks smooth however short the
    step: the bend shows in the tangents well before it comes. The determinant passes 0 there almost
    linearly: go to just before that zero (not onto it, where there is no tangent), then cross by
    one short step. Tangents near the zero are good to λ·rounding/distance², hence the root.
    """
    short = CROSSING * math.sqrt(1 + at.point[-1])
    ratio = math.exp(min(max(new.orientation[1] - at.orientation[1], -30.0), 30.0))
    ratio = -ratio if flipped else ratio
    zero = length / (1 - ratio) if ratio < 1 else math.inf
    if length <= short or not (flipped or zero < length + short / 4):
        return None
    if zero <= 0.75 * short:
        return short
    return min(max(zero - short / 2, length / 20), 0.9 * length)


def _stuck(equations: Equations, point: Vector, target: float, steps: int) -> Followed:
    """Where no step is short enough.

    Right before the target that is a bifurcation at the target itself: the branches meet there, and
    Newton at the target decides whether the point will do.
    """
    near = equations.polish(np.append(point[:-1], target))
    met = abs(target - point[-1]) < 1e-8 * target and equations.shift(point, near) < 1e-4
    return Followed(near if met else point, steps, reached=bool(met))


def _peak(start: float, rise: float, end: float, end_rise: float) -> float:
    """Largest value on the cubic with these ends and slopes over a unit step."""
    t = np.linspace(0, 1, 33)
    back = 1 - t
    ends = (1 + 2 * t) * back**2 * start + t * t * (3 - 2 * t) * end
    return float((ends + t * back**2 * rise - t * t * back * end_rise).max())
