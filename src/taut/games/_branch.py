"""The principal branch of logit equilibria, followed by pseudo-arclength continuation.

The logit equilibria of a game for all λ = 1/τ form curves; the principal branch starts with the
uniform strategies at λ = 0 (McKelvey and Palfrey 1995). It may fold back, so λ is no parameter of
it. A point is (log x, log y, λ), payoffs being in units of their largest difference. The answer is
the first point at which the branch reaches the wanted λ. At an exact symmetry the branch that
keeps the symmetry is followed, so that the answer does not depend on how strategies are labelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from taut.games._gap import normalise

Vector = np.ndarray[Any, np.dtype[np.float64]]

MAX_CORRECTION = 0.1  # largest first Newton correction of a step, in units of log-probability
MAX_SHIFT = 0.2  # largest total variation that a strategy may change by in a step
MAX_TURN = 0.25  # sharpest turn of the unit tangent in a step
CROSSING = 1e-4  # a bifurcation may be stepped over only by a step as short as this
SHORTEST = 1e-11  # below, the branch is given up
ROUGH, SHARP, POLISH = 1e-6, 1e-11, 12


class Followed(NamedTuple):
    """Where following a branch ended, in how many steps, and whether at the wanted λ."""

    point: Vector
    steps: int
    reached: bool


class Branch:
    """The equations u = log σ(λA e^v), v = log σ(λBᵀe^u) of one game, both players maximising."""

    def __init__(self, A: Vector, B: Vector) -> None:
        self.A, self.B = A, B
        self.n, self.m = A.shape

    def defect(self, point: Vector) -> Vector:
        """What is left of the equations; 0 on every branch."""
        u, v, lam = point[: self.n], point[self.n : -1], point[-1]
        rows = normalise(lam * (self.A @ np.exp(v)))
        columns = normalise(lam * (np.exp(u) @ self.B))
        return np.concatenate([u - rows, v - columns])

    def bordered(self, point: Vector, border: Vector) -> Vector:
        """The equations' Jacobian in (u, v, λ) with one more row.

        The derivative of log σ takes off the mean under the player's own strategy; taking it off
        the payoffs first keeps the entries small for the strategies that are played.
        """
        n, m, A, B = self.n, self.m, self.A, self.B
        x, y, lam = np.exp(point[:n]), np.exp(point[n:-1]), point[-1]
        rows, columns = A @ y, x @ B
        by_y = (A - rows[:, None]) * y
        by_x = ((B - columns) * x[:, None]).T
        matrix = np.eye(n + m + 1)
        matrix[:n, n:-1] = -lam * (by_y - x @ by_y)
        matrix[n:-1, :n] = -lam * (by_x - y @ by_x)
        matrix[:n, -1], matrix[n:-1, -1] = x @ rows - rows, y @ columns - columns
        matrix[-1] = border
        return matrix

    def normalised(self, point: Vector) -> Vector:
        """The point with probabilities that sum to 1."""
        parts = normalise(point[: self.n]), normalise(point[self.n : -1]), point[-1:]
        return np.concatenate(parts)

    def shift(self, before: Vector, after: Vector) -> float:
        """The larger of the players' total variations between two points."""
        change = np.abs(np.exp(before[:-1]) - np.exp(after[:-1]))
        return float(max(change[: self.n].sum(), change[self.n :].sum()) / 2)

    def tangent(self, point: Vector, border: Vector) -> tuple[Vector, Vector, Any]:
        """Unit tangent on the side of ``border``, the weights of its length, sign and log |det|.

        Length is the Fisher distance of the strategies, in which a dominated strategy (whose
        log-probability falls like λ) has no weight, and the relative change of λ: at a fold the
        first carries the step, on a long straight stretch the second.
        """
        matrix = self.bordered(point, border)
        right = np.zeros(len(point))
        right[-1] = 1.0
        tangent = np.linalg.solve(matrix, right)
        weight = np.append(np.exp(point[:-1]), (1 + point[-1]) ** -2.0)
        return tangent / np.sqrt(weight @ tangent**2), weight, np.linalg.slogdet(matrix)

    def correct(self, point: Vector, border: Vector, goal: float) -> tuple[Vector, float, bool]:
        """Newton on the hyperplane through ``point`` normal to ``border``.

        Returns the point, the size of the first correction, and whether it converged.
        """
        first = last = None
        for _ in range(6):
            right = np.append(-self.defect(point), 0.0)
            if first is not None and _size(right, point) <= 1e-15 * (10 + point[-1]):
                return point, first, True  # nothing but rounding is left of the defect
            try:
                change = np.linalg.solve(self.bordered(point, border), right)
            except np.linalg.LinAlgError:
                return point, math.inf, False
            size = _size(change, point)
            first = size if first is None else first
            grew = last is not None and size > max(0.3 * last, goal)
            if not size <= MAX_CORRECTION or grew:
                return point, max(first, size), False
            point, last = self.normalised(point + change), size
            if size * size <= goal:  # Newton squares the error, so this point is good to goal
                return point, first, True
        return point, float(first or 0.0), False

    def polish(self, point: Vector) -> Vector:
        """Newton at fixed λ until the defect no longer falls."""
        fixed = np.zeros(len(point))
        fixed[-1] = 1.0
        best, least = point, math.inf
        for _ in range(POLISH):
            defect = self.defect(point)
            weighed = np.abs(defect * np.exp(point[:-1])).sum()
            size = weighed + 1e-3 * _size(np.append(defect, 0), point)
            if not size < least:
                break
            best, least = point, size
            try:
                right = np.append(-defect, 0.0)
                point = point + np.linalg.solve(self.bordered(point, fixed), right)
            except np.linalg.LinAlgError:
                break
            point = self.normalised(point)
        return best

    def iterate(self, lam: float, rate: float) -> Vector:
        """The only equilibrium where plain iteration contracts by ``rate``; Newton finishes."""
        v = np.full(self.m, -math.log(self.m))
        for _ in range(200):
            u = normalise(lam * (self.A @ np.exp(v)))
            before, v = v, normalise(lam * (np.exp(u) @ self.B))
            if np.abs(np.exp(v) - np.exp(before)).sum() * rate <= 1e-4 * (1 - rate):
                break
        u = normalise(lam * (self.A @ np.exp(v)))
        return self.polish(np.concatenate([u, v, [lam]]))


def follow(
    branch: Branch,
    target: float,
    unique_below: float,
    max_steps: int,
    watch: Callable[[int, float], object] | None = None,
) -> Followed:
    """The branch up to λ = ``target``, from where equilibria are unique: λ < ``unique_below``."""
    if target < unique_below:
        point = branch.iterate(target, (target / unique_below) ** 2)
        return Followed(point, 0, reached=True)
    # Between 0 and unique_below there is nothing but the branch: begin there.
    point = branch.iterate(0.9 * unique_below, 0.81)
    up = np.zeros(len(point))
    up[-1] = 1.0  # no fold in the contractive part: λ rises there
    tangent, weight, orientation = branch.tangent(point, up)
    step = 0.1
    for steps in range(1, max_steps + 1):
        if step < SHORTEST or (watch is not None and watch(steps, point[-1] / target)):
            return Followed(point, steps, reached=False)
        border = weight * tangent
        ahead = (target - point[-1]) / tangent[-1] if tangent[-1] > 0 else math.inf
        last = ahead <= step
        length = ahead if last else step
        step = length / 2  # unless the new point passes all the tests
        guess = branch.normalised(point + length * tangent)
        if last:
            guess[-1] = target
        if guess[-1] < 0 or branch.shift(point, guess) > MAX_SHIFT:
            continue
        # Short steps mean a sharp bend or a bifurcation, where a loose point would drift off.
        goal = ROUGH if length > 0.03 else SHARP
        new, first, good = branch.correct(guess, up if last else border, goal)
        if not good or branch.shift(point, new) > MAX_SHIFT:
            continue
        try:
            new_tangent, new_weight, new_orientation = branch.tangent(new, border)
        except np.linalg.LinAlgError:
            continue
        turned = new_tangent / np.sqrt(weight @ new_tangent**2)
        turn = float(np.sqrt(weight @ (turned - tangent) ** 2))
        if turn > MAX_TURN:
            continue
        if new_orientation[0] != orientation[0]:
            # The orientation changes across a bifurcation, but also when a step jumps to another
            # branch, as past the sharp bend of a nearly symmetric game. Only the first looks
            # smooth however short the step. The determinant passes 0 there almost linearly: go to
            # just before that (not onto it, where there is no tangent), then cross in one step.
            if length > CROSSING:
                odds = np.exp(np.clip(new_orientation[1] - orientation[1], -9, 9))
                zero = length / (1 + odds)
                near = zero <= 0.75 * CROSSING
                step = CROSSING if near else max(zero - CROSSING / 2, length / 20)
                continue
            if turn > 0.1 * math.sqrt(length):
                continue
        # λ rises where the branch first reaches the target; a step that ends beyond it, or turns
        # back in between, may hide that first time.
        if (last and new_tangent[-1] <= 0) or new[-1] > target:
            continue
        rise, fall = length * tangent[-1], length * new_tangent[-1]
        if rise > 0 > fall and target <= _peak(point[-1], rise, new[-1], fall):
            continue
        if last:
            return Followed(branch.polish(new), steps, reached=True)
        point, tangent, weight, orientation = new, new_tangent, new_weight, new_orientation
        step = length * float(np.clip(np.sqrt(0.5 * MAX_CORRECTION / max(first, 1e-12)), 0.5, 3.0))
    return Followed(point, max_steps, reached=False)


def _size(change: Vector, point: Vector) -> float:
    """Largest change of a log-probability that matters: e^−1000 may be wrong by a factor."""
    relevance = 1 / (1 + 0.1 * np.maximum(0, -20 - point[:-1]))
    return float(np.abs(change[:-1] * relevance).max())


def _peak(start: float, rise: float, end: float, end_rise: float) -> float:
    """Largest value on the cubic with these ends and slopes over a unit step."""
    t = np.linspace(0, 1, 33)
    back = 1 - t
    ends = (1 + 2 * t) * back**2 * start + t * t * (3 - 2 * t) * end
    return float((ends + t * back**2 * rise - t * t * back * end_rise).max())
