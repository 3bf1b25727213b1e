"""The equations of a logit equilibrium in (log-strategies, λ), and Newton's method for them.

Payoffs are in units of their largest difference. A point is a vector: the log-probabilities of the
first player, of the second and so on, then λ = 1/τ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut.games._solvers.duality_gap import mixed

Vector = np.ndarray[Any, np.dtype[np.float64]]

MAX_CORRECTION = 0.1  # largest first Newton correction of a step, in units of log-probability
POLISH = 12  # Newton steps at fixed λ


class Equations:
    """The equations log x_i = log σ(λU_i(x)) of one game, in which all players maximise.

    ``payoffs`` has one array for each player, over all players' strategies. A point may be a batch
    of points where nothing else is said.
    """

    def __init__(self, *payoffs: Vector) -> None:
        self.payoffs = payoffs
        self.players = range(len(payoffs))
        ends = np.cumsum([0, *payoffs[0].shape]).tolist()
        self.parts = [slice(ends[i], ends[i + 1]) for i in self.players]

    def split(self, point: Vector) -> list[Vector]:
        """Each player's part of a point."""
        return [point[..., part] for part in self.parts]

    def pair(self, i: int, j: int, weights: list[Vector]) -> Vector:
        """What player i gains by each own strategy against each of j, by what the others play."""
        if len(weights) == 2:
            return self.payoffs[i] if i < j else self.payoffs[i].T
        others = [k for k in self.players if k not in (i, j)]
        operands: list[Any] = [self.payoffs[i], [*self.players]]
        for k in others:
            operands += [weights[k], [..., k]]
        table: Vector = np.einsum(*operands, [..., i, j])
        return table

    def gains(self, i: int, weights: list[Vector]) -> Vector:
        """What each strategy of player i gains against what the others play."""
        j = 1 if i == 0 else 0
        return _product(self.pair(i, j, weights), weights[j])

    def defect(self, point: Vector) -> Vector:
        """What is left of the equations; 0 on every branch."""
        weights, lam = [np.exp(part) for part in self.split(point)], point[..., -1:]
        answers = [_logs(lam * self.gains(i, weights)) for i in self.players]
        return point[..., :-1] - np.concatenate(answers, axis=-1)

    def bordered(self, point: Vector, border: Vector) -> Vector:
        """The equations' Jacobian in (log-strategies, λ) with one more row.

        The derivative of log σ takes off the mean under the player's own strategy; taking it off
        the payoffs first keeps the entries small for the strategies that are played.
        """
        weights, lam = [np.exp(part) for part in self.split(point)], point[..., -1, None, None]
        size = point.shape[-1]
        matrix = np.zeros((*point.shape, size))
        matrix[..., range(size), range(size)] = 1
        for i, own in enumerate(self.parts):
            x, gains = weights[i], self.gains(i, weights)
            for j, other in enumerate(self.parts):
                if i != j:
                    table = self.pair(i, j, weights)
                    moved = (table - gains[..., :, None]) * weights[j][..., None, :]
                    means = x[..., None, :] @ moved
                    matrix[..., own, other] = -lam * (moved - means)
            matrix[..., own, -1] = np.sum(x * gains, axis=-1, keepdims=True) - gains
        matrix[..., -1, :] = border
        return matrix

    def normalised(self, point: Vector) -> Vector:
        """The point with probabilities that sum to 1."""
        return np.concatenate([*map(_logs, self.split(point)), point[..., -1:]], axis=-1)

    def shift(self, before: Vector, after: Vector) -> float:
        """The largest of the players' total variations between two points."""
        change = np.abs(np.exp(before[:-1]) - np.exp(after[:-1]))
        return float(max(change[part].sum() for part in self.parts) / 2)

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
        weight = self.weight(point)
        return tangent / np.sqrt(weight @ tangent**2), weight, np.linalg.slogdet(matrix)

    def weight(self, point: Vector) -> Vector:
        """How the squares of the parts of a step add up to its length; see :meth:`tangent`."""
        return np.append(np.exp(point[:-1]), (1 + point[-1]) ** -2.0)

    def index(self, point: Vector) -> int:
        """The sign of the determinant of the Jacobian at fixed λ: 1, −1, or 0 where it is singular.

        All logit equilibria at one λ have indices that sum to 1, if none of them is singular: the
        map is the identity but for something bounded, so its degree is 1.
        """
        fixed = np.zeros(len(point))
        fixed[-1] = 1.0
        return int(np.linalg.slogdet(self.bordered(point, fixed))[0])

    def correct(self, point: Vector, border: Vector, goal: float) -> tuple[Vector, float, bool]:
        """Newton on the hyperplane through ``point`` normal to ``border``.

        Returns the point, the size of the first correction, and whether it converged.
        """
        first = last = None
        for _ in range(6):
            right = np.append(-self.defect(point), 0.0)
            if first is not None and _size(right, point) <= 4e-15 * (10 + point[-1]):
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
            point = self.normalised(point + change)
            # Newton squares the error, by a factor seen in the last two sizes.
            if size * max(size, (size / last) ** 2 if last else 0.0) <= goal:
                return point, first, True
            last = size
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
        """The only equilibrium where plain iteration contracts by ``rate``; Newton finishes.

        Players answer in turn, the first one last.
        """
        logs = [np.full(n, -math.log(n)) for n in self.payoffs[0].shape]
        weights = [np.exp(part) for part in logs]
        for _ in range(200):
            before = weights[-1]
            for i in self.players:
                logs[i] = _logs(lam * self.gains(i, weights))
                weights[i] = np.exp(logs[i])
            if np.abs(weights[-1] - before).sum() * rate <= 1e-4 * (1 - rate):
                break
        logs[0] = _logs(lam * self.gains(0, weights))
        return self.polish(np.concatenate([*logs, [lam]]))


def in_own_units(*payoffs: Vector) -> tuple[Equations, float]:
    """The game in units of the largest difference that a choice can make, and that unit.

    What only the others decide shifts all of a player's payoffs alike and drops out.
    """
    centred = []
    for i, payoff in enumerate(payoffs):
        middle = (payoff.max(axis=i, keepdims=True) + payoff.min(axis=i, keepdims=True)) / 2
        centred.append(payoff - middle)
    unit = 2 * float(max(np.abs(payoff).max() for payoff in centred)) or 1.0
    return Equations(*(payoff / unit for payoff in centred)), unit


def _product(matrix: Vector, vector: Vector) -> Vector:
    """Matrix times vector, or of each of a batch."""
    return matrix @ vector if vector.ndim == 1 else (matrix @ vector[..., None])[..., 0]


def _logs(logits: Vector) -> Vector:
    """Log-probabilities of logits."""
    logs: Vector = mixed(logits).logs
    return logs


def _size(change: Vector, point: Vector) -> float:
    """Largest change of a log-probability that matters: e^−1000 may be wrong by a factor."""
    relevance = 1 / (1 + 0.1 * np.maximum(0, -20 - point[:-1]))
    return float(np.abs(change[:-1] * relevance).max())
