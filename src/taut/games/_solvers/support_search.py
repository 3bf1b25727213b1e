"""Nash equilibria by their supports: starting points for the search at low temperatures.

Near every regular Nash equilibrium there is a logit equilibrium once τ is small, but Newton's
method for that one converges only from very near. The strategies that are played in a Nash
equilibrium gain the same; for given supports these are equations without τ, linear for two players.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taut.games._solvers.logit_equations import Equations, Vector

TRIES = 6  # starting points for each choice of supports, if there are more than two players
ITERATIONS = 12
EXACT = 1e-9  # what may be left of the equations, in units of payoff


class _Candidate(NamedTuple):
    """Logarithms of the strategies, and what those that are not played gain less than the best."""

    logs: Vector
    behind: Vector


Supports = tuple[tuple[int, ...], ...]


def nash_candidates(
    game: Equations, lam: float, most: int, rng: np.random.Generator
) -> Iterator[Vector]:
    """Points with this λ near Nash equilibria, as far as Newton's method finds them.

    ``most`` limits the number of choices of supports, of which some are then drawn at random.
    """
    for supports in _choices(game.payoffs[0].shape, most, rng):
        for _ in range(TRIES if len(supports) > 2 else 1):
            found = _indifferent(game, supports, rng)
            if found is not None:
                # What is not played falls behind by its gains, λ times.
                logits = np.where(np.isfinite(found.logs), found.logs, lam * found.behind)
                yield game.normalised(np.append(logits, lam))


def _choices(sizes: tuple[int, ...], most: int, rng: np.random.Generator) -> Iterator[Supports]:
    """All choices of supports, or ``most`` of them at random."""
    if np.prod([2.0**n - 1 for n in sizes]) <= most:
        subsets = [
            [c for k in range(1, n + 1) for c in itertools.combinations(range(n), k)] for n in sizes
        ]
        yield from itertools.product(*subsets)
        return
    for _ in range(most):
        kept = (np.flatnonzero(rng.random(n) < 0.5) for n in sizes)
        yield tuple(
            tuple(some.tolist()) if len(some) else (int(rng.integers(n)),)
            for some, n in zip(kept, sizes, strict=True)
        )


def _indifferent(
    game: Equations, supports: Supports, rng: np.random.Generator
) -> _Candidate | None:
    """Strategies with these supports that gain the same, and no other gains more; or nothing.

    The unknowns are all probabilities and what each player gains.
    """
    total = game.parts[-1].stop
    unknown = np.zeros(total + len(supports))
    played = np.zeros(total, dtype=bool)
    for part, support in zip(game.parts, supports, strict=True):
        chosen = np.asarray(support) + part.start
        unknown[chosen] = rng.dirichlet(np.ones(len(support)))
        played[chosen] = True
    for _ in range(ITERATIONS):
        weights = game.split(unknown)
        matrix = np.zeros((len(unknown), len(unknown)))
        left = np.zeros(len(unknown))
        for i, own in enumerate(game.parts):
            gains = game.gains(i, weights)
            for j, other in enumerate(game.parts):
                if i != j:
                    matrix[own, other] = game.pair(i, j, weights)
            matrix[own, total + i] = -1
            left[own] = gains - unknown[total + i]
            matrix[total + i, own] = 1
            left[total + i] = weights[i].sum() - 1
        idle = np.flatnonzero(~played)
        matrix[idle] = np.eye(len(unknown))[idle]
        ahead, left[idle] = left[idle], unknown[idle]
        if np.abs(left).max() < EXACT:
            good = np.all(ahead < EXACT) and np.all(unknown[:total][played] > 0)
            if not good:
                return None
            behind = np.zeros(total)
            behind[idle] = ahead
            with np.errstate(divide="ignore"):
                return _Candidate(np.log(np.where(played, unknown[:total], 0)), behind)
        try:
            unknown = unknown - np.linalg.solve(matrix, left)
        except np.linalg.LinAlgError:
            return None
        if not np.abs(unknown).max() < 1e6:
            return None
    return None
