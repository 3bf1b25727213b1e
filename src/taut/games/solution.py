"""The answer to a regularised zero-sum game, with a proof of its quality."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut._base.array import Array, to_host
from taut._base.bound import Bound
from taut._base.domain import Described
from taut._base.norm import Norm
from taut.games.answer import Answer
from taut.games.certificate import ContractionCertificate
from taut.games.deferred import Deferred

PLAYERS = Norm(*["l2 over the players' l1"] * 2)  # √(‖dx‖₁² + ‖dy‖₁²)
FARTHEST = math.sqrt(8.0)  # in this norm, of two pairs of strategies
NORMALISED = Described("x and y over their sums")


@dataclass(frozen=True, eq=False)
class Solution(Answer):
    """A pair of strategies with a proof of its quality, for one game or each of a batch.

    The answer to one game of a batch is ``solution[i]``; ``to_dict()`` is fit for JSON.

    Attributes
    ----------
    x, y
        Mixed strategies of the row player, who pays, and of the column player, who receives.
    value, lower, upper
        Value of the regularised game, which the row player pays, and two numbers between which it
        lies, rounding included.
    payoff
        xᵀAy, without entropies.
    gap
        Duality gap of (x, y), each divided by its sum: an upper bound in units of payoff, by
        theorem gap, rounding included.
    distance
        :class:`taut.Bound` on √(‖x − x*‖₁² + ‖y − y*‖₁²), which follows from the gap (theorem
        gap), x and y divided by their sums, which are 1 but for rounding.
    exploitability
        max Aᵀx − min Ay, rounded up: what best answers win in the game without entropy.
    converged
        Whether ``gap`` is at most ``target``, the gap that was asked for.
    status
        "converged", or why not: "budget" (iterations ran out), "rounding" (no smaller gap
        can be proved in floating-point arithmetic), "stalled" (the method gave up) or "stopped"
        (by the callback).
    method, iterations, products
        The method that found the strategies ("start" if none improved on the first point), its
        iterations and its matrix-vector products. A Newton step also costs a factorisation.
    certificate
        What was known before solving: a :class:`ContractionCertificate`. Of a single small game it
        is put together when it is first read.
    """

    x: Array
    y: Array
    value: Any
    lower: Any
    upper: Any
    payoff: Any
    gap: Any
    distance: Bound
    exploitability: Any
    converged: Any
    status: Any
    target: Any
    method: Any
    iterations: Any
    products: Any
    certificate: Deferred[ContractionCertificate] = Deferred()  # noqa: RUF009 - no default

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the batch; () for a single game."""
        return self.distance.shape

    def facts(self) -> list[tuple[str, str]]:
        """The answer to a single game in words, as pairs of name and text."""
        self.single()
        asked = "as asked for" if self.converged else f"asked for {self.target:.3g}: {self.status}"
        certified = self.certificate
        plain = certified.iterations(self.target)
        rate = f"; rounds for this gap: at most {plain:.0f}" if plain < math.inf else ""
        return [
            ("row pays column", f"{self.value:.10g} with entropies, {self.payoff:.10g} without"),
            ("duality gap", f"at most {self.gap:.3g} ({asked})"),
            ("distance", f"x and y are within {self.distance.upper:.3g} in l1 (theorem gap)"),
            ("exploitability", f"at most {self.exploitability:.6g} in the game without entropy"),
            ("found by", f"{self.method}, {self.iterations} iterations, {self.products} products"),
            ("certificate", f"{certified}{rate}"),
        ]

    def __str__(self) -> str:
        if self.distance.shape:
            solved = np.count_nonzero(to_host(self.converged))
            worst = np.max(self.gap, initial=0.0)
            return f"{solved} of {np.size(self.gap)} games solved, largest gap {worst:.3g}"
        end = "" if self.converged else f", not the {self.target:.3g} asked for ({self.status})"
        return (
            f"value {self.value:.10g}, gap at most {self.gap:.3g}{end}; {self.method}, "
            f"{self.iterations} iterations, {self.products} products"
        )


def distance_bound(above: Any) -> Bound:
    """The bound on the distance to the equilibrium: no two pairs of strategies are √8 apart."""
    above = np.minimum(above, FARTHEST) if np.shape(above) else min(above, FARTHEST)
    return Bound(
        0 * above,
        above,
        "upper",
        PLAYERS,
        NORMALISED,
        "gap",
        quantity="distance",
        rounding="proved",
    )
