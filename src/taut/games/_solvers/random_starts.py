"""Newton's method at fixed λ from many points at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taut.games._solvers.logit_equations import Equations, Vector

ITERATIONS = 25
LONGEST = 0.5  # largest change of a probability in a step
SAME = 1e-6  # total variation up to which two solutions are the same


def random_points(
    equations: Equations, lam: float, number: int, rng: np.random.Generator
) -> Vector:
    """Random strategies at this λ, half of them answers to random strategies."""
    sizes = equations.payoffs[0].shape
    spreads = 10 ** rng.uniform(-1.5, 0.5, size=number)
    weights = [np.stack([rng.dirichlet(np.full(n, s)) for s in spreads]) for n in sizes]
    answers = [lam * equations.gains(i, weights) for i in equations.players]
    own = [np.log(np.maximum(w, 1e-300)) for w in weights]
    odd = np.arange(number)[:, None] % 2 == 1
    logits = [np.where(odd, answer, w) for answer, w in zip(answers, own, strict=True)]
    return equations.normalised(np.concatenate([*logits, np.full((number, 1), lam)], axis=-1))


def solutions(equations: Equations, points: Vector) -> Iterator[Vector]:
    """The different solutions that Newton's method finds from these points, each at its λ."""
    fixed = np.zeros(points.shape[-1])
    fixed[-1] = 1.0
    for _ in range(ITERATIONS):
        right = np.append(-equations.defect(points), np.zeros((len(points), 1)), axis=-1)
        matrix = equations.bordered(points, fixed)
        good = np.isfinite(right).all(axis=-1) & np.isfinite(matrix).all(axis=(-2, -1))
        good[good] = np.linalg.slogdet(matrix[good])[0] != 0
        points, right, matrix = points[good], right[good], matrix[good]
        if not len(points):
            return
        change = np.linalg.solve(matrix, right[..., None])[..., 0]
        moved = np.abs(change[:, :-1] * np.exp(points[:, :-1])).max(axis=-1, keepdims=True)
        share = np.minimum(1, LONGEST / np.maximum(moved, 1e-9))
        points = equations.normalised(points + share * change)
    found: list[Vector] = []
    for candidate in points[moved[:, 0] < 1e-8]:
        if any(equations.shift(candidate, other) < SAME for other in found):
            continue
        point = equations.polish(candidate)
        if np.abs(equations.defect(point)).max() < 1e-9 * (1 + point[-1]):
            found.append(point)
            yield point
