"""All branches of logit equilibria that can be found: along bifurcations, and by search.

The principal branch comes first. Wherever another one crosses, that one is followed in both
directions, and so on. Branches that touch none of these are found by search: Newton's method starts
near Nash equilibria at the largest λ and from random strategies at several λ, and whatever does not
lie on a known branch is followed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from taut.games._solvers.branch import SHARP, Place, trace
from taut.games._solvers.branch_points import BranchPoint, branch_points, crossing
from taut.games._solvers.logit_equations import Equations, Vector
from taut.games._solvers.random_starts import random_points, solutions
from taut.games._solvers.support_search import nash_candidates

LONGEST = 0.25  # length of a step: λ changes by a quarter, so that no bifurcation is stepped over
SAME = 1e-5  # total variation up to which two solutions at one λ are the same
DIFFERENT = 1e-4  # total variation between two equilibria that are not the same
MODERATE = 30.0  # λ up to which random strategies come near enough to unknown solutions
SUPPORTS = 10  # choices of supports for each start at a moderate λ
LEVELS = 5  # values of λ at which the search starts
ROUNDS = 3  # searches, while the indices of what was found show that something is missing


class TracedBranch(NamedTuple):
    """The points of a branch, where it was found, and why each of its ends is one."""

    places: list[Place]
    origin: str
    ends: tuple[str, str]


class Explorer:
    """Follows branches, and knows which points lie on those that were followed."""

    def __init__(
        self,
        equations: Equations,
        target: float,
        max_steps: int,
        most: int,
        watch: Callable[[int, float], object] | None,
        rng: np.random.Generator,
    ) -> None:
        self.equations, self.target, self.max_steps, self.most = equations, target, max_steps, most
        self.watch, self.rng = watch, rng
        # In these units two strategies differ by at most 1: below, answers to answers contract.
        self.unique_below = 2 / max(len(equations.payoffs) - 1, 1)
        self.branches: list[TracedBranch] = []
        self.points: list[BranchPoint] = []
        self.stopped = False

    def explore(self, starts: int) -> None:
        """Follow the principal branch, what crosses it, and what a search finds."""
        sizes = self.equations.payoffs[0].shape
        uniform = np.concatenate([*(np.full(n, -math.log(n)) for n in sizes), [0.0]])
        up = np.zeros(len(uniform))
        up[-1] = 1.0
        at = Place(uniform, *self.equations.tangent(uniform, up))
        found = trace(self.equations, at, self.target, self.max_steps, longest=LONGEST,
                      watch=self._watched)  # fmt: skip
        self._keep(TracedBranch(found.places, "uniform", ("uniform", found.end)))
        if self.target <= self.unique_below:  # there is no other equilibrium
            return
        for _ in range(ROUNDS if starts else 0):
            for point in self._search(starts):
                if self.full:
                    return
                self._both_ways(point, "search")
            if sum(map(self.equations.index, self.ends())) == 1:
                return

    def ends(self) -> list[Vector]:
        """The different points at which branches reach the wanted λ."""
        found: list[Vector] = []
        for branch in self.branches:
            for place, end in zip((branch.places[0], branch.places[-1]), branch.ends, strict=True):
                new = all(self.equations.shift(place.point, p) > DIFFERENT for p in found)
                if end == "temperature" and new:
                    found.append(place.point)
        return found

    @property
    def full(self) -> bool:
        """Whether no further branch may be followed."""
        return self.stopped or len(self.branches) >= self.most

    def _watched(self, step: int, share: float) -> bool:
        self.stopped = self.stopped or (self.watch is not None and bool(self.watch(step, share)))
        return self.stopped

    def _keep(self, branch: TracedBranch) -> None:
        """Enter a branch, and follow those that cross it."""
        self.branches.append(branch)
        equations = self.equations
        for at in branch_points(equations, branch.places):
            if any(equations.shift(at.place.point, p.place.point) < 1e-3 for p in self.points):
                continue
            self.points.append(at)
            for point in crossing(equations, at, self.rng):
                if self.full:
                    return
                self._both_ways(point, "bifurcation")

    def _both_ways(self, point: Vector, origin: str) -> None:
        """Follow the branch of a point in both directions, unless it is known."""
        if self._known(point):
            return
        up = np.zeros(len(point))
        up[-1] = 1.0
        try:
            tangent, *rest = self.equations.tangent(point, up)
        except np.linalg.LinAlgError:
            return
        halves = []
        for side in (-tangent, tangent):
            # The orientation belongs to a direction: the matrix has the tangent as a row.
            start = Place(point, *self.equations.tangent(point, rest[0] * side))
            halves.append(
                trace(
                    self.equations,
                    start,
                    self.target,
                    self.max_steps,
                    longest=LONGEST,
                    least=0.99 * self.unique_below,
                    watch=self._watched,
                )
            )
            if halves[-1].end == "closed":
                break
        back = halves[0].places[::-1]
        ends = (halves[0].end, halves[-1].end)
        turned = [place._replace(tangent=-place.tangent) for place in back]
        places = turned + (halves[1].places[1:] if len(halves) > 1 else [])
        self._keep(TracedBranch(places, origin, ends))

    def _known(self, point: Vector) -> bool:
        """Whether a point lies on a branch that was followed."""
        crossed = (at for branch in self.branches for at in self._at(branch, point[-1]))
        return any(self.equations.shift(point, other) < SAME for other in crossed)

    def _at(self, branch: TracedBranch, lam: float) -> Iterator[Vector]:
        """The points of a branch with this λ."""
        fixed = np.zeros(len(branch.places[0].point))
        fixed[-1] = 1.0
        for one, two in itertools.pairwise(place.point for place in branch.places):
            if not min(one[-1], two[-1]) <= lam <= max(one[-1], two[-1]):
                continue
            share = (lam - one[-1]) / (two[-1] - one[-1]) if two[-1] != one[-1] else 0.0
            guess = self.equations.normalised((1 - share) * one + share * two)
            guess[-1] = lam
            point, _, good = self.equations.correct(guess, fixed, SHARP)
            yield point if good else guess

    def _search(self, starts: int) -> Iterator[Vector]:
        """Solutions from many starting points, at several λ, the wanted one among them."""
        near = list(nash_candidates(self.equations, self.target, SUPPORTS * starts, self.rng))
        if near:
            yield from solutions(self.equations, np.stack(near))
        warmest, coldest = self.unique_below, min(self.target, MODERATE)
        for lam in [*np.geomspace(warmest, coldest, LEVELS)[1:].tolist(), self.target]:
            points = random_points(self.equations, lam, starts, self.rng)
            yield from solutions(self.equations, points)
