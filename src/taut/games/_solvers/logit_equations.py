"""The equations of a logit equilibrium in (log x, log y, λ), and Newton's method for them.

Payoffs are in units of their largest difference. A point is a vector: log x, log y, then λ = 1/τ.
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
    """The equations u = log σ(λA e^v), v = log σ(λBᵀe^u) of one game, both players maximising."""

    def __init__(self, A: Vector, B: Vector) -> None:
        self.A, self.B = A, B
        self.n, self.m = A.shape

    def defect(self, point: Vector) -> Vector:
        """What is left of the equations; 0 on every branch."""
        u, v, lam = point[: self.n], point[self.n : -1], point[-1]
        rows = _logs(lam * (self.A @ np.exp(v)))
        columns = _logs(lam * (np.exp(u) @ self.B))
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
        parts = _logs(point[: self.n]), _logs(point[self.n : -1]), point[-1:]
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
        """The only equilibrium where plain iteration contracts by ``rate``; Newton finishes."""
        v = np.full(self.m, -math.log(self.m))
        for _ in range(200):
            u = _logs(lam * (self.A @ np.exp(v)))
            before, v = v, _logs(lam * (np.exp(u) @ self.B))
            if np.abs(np.exp(v) - np.exp(before)).sum() * rate <= 1e-4 * (1 - rate):
                break
        u = _logs(lam * (self.A @ np.exp(v)))
        return self.polish(np.concatenate([u, v, [lam]]))


def _logs(logits: Vector) -> Vector:
    """Log-probabilities of logits."""
    logs: Vector = mixed(logits).logs
    return logs


def _size(change: Vector, point: Vector) -> float:
    """Largest change of a log-probability that matters: e^−1000 may be wrong by a factor."""
    relevance = 1 / (1 + 0.1 * np.maximum(0, -20 - point[:-1]))
    return float(np.abs(change[:-1] * relevance).max())
