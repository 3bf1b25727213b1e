"""Keep the best point of each game, count what it cost, and say when to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taut._base.array import Array, to_host
from taut.games._solvers.duality_gap import Mixed, StrategyPair, floor, judge
from taut.games._solvers.game import Game

Host = np.ndarray[Any, np.dtype[Any]]


class Bookkeeping:
    """Best points of a batch of games, with what they cost.

    A method opens the games that are still unsolved, and after each iteration hands in its points
    with their gaps. It may wander: what counts is the best point so far.
    """

    def __init__(
        self,
        game: Game,
        start: StrategyPair,
        target: Host,
        *,
        limit: Host,
        watch: Callable[[int, float], object] | None = None,
    ) -> None:
        games = target.shape[0]
        self.game, self.best, self.target, self.limit, self.watch = (
            game,
            start,
            target,
            limit,
            watch,
        )
        self.best_gap = np.array(to_host(judge(game, start).gaps))
        self.floor = 2 * to_host(floor(game))
        self._enough = np.maximum(target, self.floor)
        self.iterations = np.zeros(games, dtype=np.int64)
        self.products = np.zeros(games, dtype=np.int64)
        self.methods: list[str] = ["start"] * games
        self.stopped = False
        self._open = np.arange(0)
        self._method = ""

    @property
    def going(self) -> bool:
        """Whether the method at work has games left."""
        return len(self._open) > 0

    @property
    def unsolved(self) -> Host:
        """Numbers of the games that are worth another iteration."""
        return np.flatnonzero(~self._finished(np.arange(len(self.target))))

    def open(self, method: str) -> tuple[Game, StrategyPair]:
        """Begin a method: the unsolved games and their best points."""
        self._open, self._method = self.unsolved, method
        return self.game.take(self._open), self.best.take(self._open)

    def open_gaps(self) -> Host:
        """The best gaps of the open games."""
        found: Host = self.best_gap[self._open]
        return found

    def allowance(self) -> tuple[Host, Host]:
        """Wanted gaps of the open games, and the iterations they have left."""
        index = self._open
        return self.target[index], self.limit[index] - self.iterations[index]

    def advance(
        self,
        at: StrategyPair,
        gaps: Array,
        *,
        products: int | Host,
        iterations: int | Host = 1,
        leave: Array | None = None,
    ) -> Host | None:
        """Book an iteration; positions of the games that go on, or None if all do.

        ``leave`` marks games that the method gives up.
        """
        index, found = self._open, to_host(gaps)
        self.iterations[index] += iterations
        self.products[index] += products
        self._keep(index, at, found, found < self.best_gap[index])
        if self.watch is not None:
            worst = int(np.argmax(self.best_gap / self.target))
            self.stopped |= bool(
                self.watch(int(self.iterations.max()), float(self.best_gap[worst]))
            )
        done = self._finished(index)
        if leave is not None:
            done |= to_host(leave)
        if not done.any():
            return None
        self._open = index[~done]
        return np.flatnonzero(~done)

    def _keep(self, index: Host, at: StrategyPair, gaps: Host, better: Host) -> None:
        """Replace the best points where there is a better one; NaN is never better."""
        if not better.any():
            return
        for position in np.flatnonzero(better):
            self.methods[index[position]] = self._method
        self.best_gap[index[better]] = gaps[better]
        if better.all() and len(index) == len(self.target):
            self.best = at
            return

        def merged(kept: Array, new: Array) -> Array:
            copy = kept + 0
            copy[index[better]] = new[better]
            return copy

        pairs = ((self.best.x, at.x), (self.best.y, at.y))
        x, y = (Mixed(*map(merged, kept, new)) for kept, new in pairs)
        costs, gains = merged(self.best.costs, at.costs), merged(self.best.gains, at.gains)
        self.best = StrategyPair(x, y, costs, gains)

    def _finished(self, index: Host) -> Host:
        """Games that are solved, as well as rounding allows, or out of budget."""
        good = self.best_gap[index] <= self._enough[index]
        if self.stopped:
            return np.ones_like(good)
        return np.asarray(good | (self.iterations[index] >= self.limit[index]))

    def status(self) -> list[str]:
        """How each game ended: converged, rounding, stopped, budget or stalled."""
        names = []
        fields = (self.best_gap, self.target, self.floor, self.iterations >= self.limit)
        for found, target, floor_, spent in zip(*fields, strict=True):
            if found <= target:
                names.append("converged")
            elif found <= floor_:
                names.append("rounding")
            else:
                out_of = "budget" if spent else "stalled"
                names.append("stopped" if self.stopped else out_of)
        return names
