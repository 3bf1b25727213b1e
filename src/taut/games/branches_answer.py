"""Branches of logit equilibria, their points, and what is proved of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taut._base.bound import Bound
from taut._base.number_text import how_many
from taut.games.answer import Answer

Vector = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class LogitPoints(Answer):
    """Points on or near branches of logit equilibria, each at a temperature of its own.

    ``points[k]`` is one of them; ``to_dict()`` is fit for JSON.

    Attributes
    ----------
    temperature
        τ of each point, shape (points,); λ = 1/τ is ``scale``.
    strategies
        For each player an array of shape (points, strategies).
    regrets
        :class:`taut.Bound`, shape (points, players): what another strategy would gain at most in
        the game with entropies, τKL(x_i ‖ σ(U_i/τ)).
    exploitability
        :class:`taut.Bound`, shape (points, players): what a best answer gains at most in the game
        without entropies.
    index
        The sign of the determinant of the equations at fixed τ, shape (points,), as computed: +1,
        or −1, say between two stable equilibria. It changes at folds and bifurcations.
    distance
        :class:`taut.Bound`, shape (points,): an exact logit equilibrium at this τ exists whose
        strategies differ by at most this from the point's, in l1 for each player (theorem
        logit-newton). Infinite where that is not proved, as near folds and bifurcations.
    """

    temperature: Vector
    strategies: tuple[Vector, ...]
    regrets: Bound
    exploitability: Bound
    index: Vector
    distance: Bound

    @property
    def shape(self) -> tuple[int, ...]:
        """How many points there are; () for a single one."""
        return np.shape(self.temperature)

    @property
    def scale(self) -> Vector:
        """λ = 1/τ of each point."""
        return np.asarray(1 / np.asarray(self.temperature))

    @property
    def proved(self) -> Vector:
        """Whether an exact logit equilibrium is proved to lie near, for each point."""
        return np.asarray(np.isfinite(self.distance.upper))

    def __str__(self) -> str:
        worst = np.max(self.exploitability.upper, initial=0.0)
        return (
            f"{np.size(self.temperature)} points, {np.count_nonzero(self.proved)} with a proved "
            f"equilibrium nearby; exploitability at most {worst:.3g}"
        )


@dataclass(frozen=True, eq=False)
class LogitBranch(Answer):
    """A curve of logit equilibria.

    Attributes
    ----------
    points
        Its points in order, a :class:`LogitPoints`.
    origin
        How it was found: "uniform" (the principal branch), "bifurcation" or "search".
    ends
        What is at its two ends: "uniform" (the uniform strategies at τ = ∞), "temperature" (the
        lowest temperature), "closed" (it is a loop), or why it was left: "lost", "budget",
        "stopped".
    """

    points: LogitPoints
    origin: str
    ends: tuple[str, str]

    @property
    def shape(self) -> tuple[int, ...]:
        """A branch is one thing; its points can be indexed."""
        return ()

    @property
    def folds(self) -> Vector:
        """Numbers of the points at which λ turns round."""
        rises = np.sign(np.diff(self.points.scale))
        return np.flatnonzero(rises[1:] * rises[:-1] < 0) + 1

    def __str__(self) -> str:
        scale = self.points.scale
        return (
            f"{self.origin}: scale {scale.min():.4g} to {scale.max():.4g}, {len(scale)} points, "
            f"{how_many(len(self.folds), 'fold')}, ends: {', '.join(self.ends)}"
        )


@dataclass(frozen=True, eq=False)
class LogitBranches(Answer):
    """The branches of logit equilibria that were found, down to a temperature.

    The list is not proved to be complete: branches that cross no other are found by search only.

    Attributes
    ----------
    branches
        :class:`LogitBranch` each, the principal one first.
    equilibria
        The different equilibria at the lowest temperature, :class:`LogitPoints`.
    bifurcations
        Points within 1e-4 or so of where branches cross.
    temperature
        The lowest temperature.
    status
        "done", "most" (``max_branches`` were followed) or "stopped" (by the callback).
    """

    branches: tuple[LogitBranch, ...]
    equilibria: LogitPoints
    bifurcations: LogitPoints
    temperature: float
    status: str

    @property
    def shape(self) -> tuple[int, ...]:
        """No batches here."""
        return ()

    @property
    def balanced(self) -> bool:
        """Whether the indices of the equilibria that were found sum to 1.

        If they do not, there are more: those of all equilibria do, unless one is singular. If
        they do, there may still be more, in pairs.
        """
        return int(np.sum(self.equilibria.index)) == 1

    @property
    def at_least(self) -> int:
        """How many logit equilibria at the lowest temperature are proved to exist.

        Of those with an exact equilibrium nearby so many are further apart than the distances
        to these, so that no two of them are the same.
        """
        chosen: list[int] = []
        distance = self.equilibria.distance.upper
        for k in np.flatnonzero(self.equilibria.proved):
            apart = (
                max(float(np.abs(x[k] - x[j]).sum()) for x in self.equilibria.strategies)
                > distance[k] + distance[j] + 1e-12
                for j in chosen
            )
            if all(apart):
                chosen.append(int(k))
        return len(chosen)

    def facts(self) -> list[tuple[str, str]]:
        """The answer in words, as pairs of name and text."""
        worst = np.max(self.equilibria.exploitability.upper, initial=0.0)
        lost = sum(end in ("lost", "budget") for one in self.branches for end in one.ends)
        given_up = f"{how_many(lost, 'end')} of theirs lost" if lost else "none lost on the way"
        scales = ", ".join(f"{scale:.6g}" for scale in self.bifurcations.scale)
        sums = "sum to 1, as all do" if self.balanced else "do not sum to 1: some are missing"
        return [
            ("equilibria", f"{len(self.equilibria)} found, at least {self.at_least} exist"),
            ("indices", sums),
            ("temperature", f"{self.temperature:.6g} (scale {1 / self.temperature:.6g})"),
            ("exploitability", f"at most {worst:.3g} in the game without entropies"),
            ("branches", f"{len(self.branches)}, {given_up} ({self.status})"),
            ("bifurcations", f"at scale {scales}" if scales else "none"),
        ]

    def __str__(self) -> str:
        found, exist = len(self.equilibria), self.at_least
        return (
            f"{how_many(found, 'equilibrium', 'equilibria')} at temperature "
            f"{self.temperature:.4g} (at least {exist} exist) on "
            f"{how_many(len(self.branches), 'branch', 'branches')} with "
            f"{how_many(len(self.bifurcations), 'bifurcation')}"
        )
