"""The certificate of a general-sum game, and the answer to it."""

from __future__ import annotations

from dataclasses import dataclass

from taut._base.array import Array
from taut._base.bound import Bound
from taut.games.answer import Answer


@dataclass(frozen=True, eq=False)
class LogitCertificate(Answer):
    """What is known beforehand of a game at temperature τ (theorem logit-tv).

    ``factor`` bounds the Lipschitz constant of y ↦ σ(Bᵀσ(Ay/τ)/τ); below 1 the equilibrium is
    unique, which is certified for every τ above ``smallest_temperature``.
    """

    temperature: float
    factor: Bound
    smallest_temperature: float

    @property
    def shape(self) -> tuple[int, ...]:
        """No batches here."""
        return ()

    @property
    def contracts(self) -> bool:
        """Whether there is certainly one equilibrium only."""
        return bool(self.factor.upper < 1)

    def __str__(self) -> str:
        return (
            f"factor {self.factor.upper:.4g} (logit-tv); one equilibrium is certified for "
            f"temperatures above {self.smallest_temperature:.6g}"
        )


@dataclass(frozen=True, eq=False)
class LogitEquilibrium(Answer):
    """A pair of strategies, each of which nearly answers the other.

    Attributes
    ----------
    x, y
        Mixed strategies of the row and of the column player.
    regrets
        What each player could gain at most by another strategy in the game with entropies,
        τKL(x ‖ σ(Ay/τ)) and τKL(y ‖ σ(Bᵀx/τ)): upper bounds, rounding included.
    distance
        :class:`taut.Bound` on ‖y − y*‖₁, y divided by its sum, where the equilibrium is certified
        to be unique, else None: there may be others.
    payoffs
        xᵀAy and xᵀBy.
    exploitability
        What each player could gain by a best answer in the game without entropies, rounded up.
    converged, status, target
        Whether both regrets are at most ``target``, and how the search ended: "converged",
        "rounding", or "branch" (it could not be followed to τ), "budget", "stopped". After these
        three the answer is what Newton found from where the branch was left: with small regrets an
        equilibrium, but not shown to be the one of the branch.
    principal
        Whether the branch was followed up to the answer, the first point with this τ.
    steps
        Steps along the branch; 0 where the equilibrium is unique.
    certificate
        What was known beforehand.
    """

    x: Array
    y: Array
    regrets: tuple[float, float]
    distance: Bound | None
    payoffs: tuple[float, float]
    exploitability: tuple[float, float]
    converged: bool
    status: str
    target: float
    principal: bool
    steps: int
    certificate: LogitCertificate

    @property
    def shape(self) -> tuple[int, ...]:
        """No batches here."""
        return ()

    def facts(self) -> list[tuple[str, str]]:
        """The answer in words, as pairs of name and text."""
        asked = "as asked for" if self.converged else f"asked for {self.target:.3g}: {self.status}"
        unique = "the only equilibrium" if self.distance is not None else "there may be others"
        where = (
            "on the principal branch"
            if self.principal
            else "not shown to lie on the principal branch"
        )
        regrets, payoffs, exploited = (
            " and ".join(form.format(value) for value in pair)
            for form, pair in (
                ("{:.3g}", self.regrets),
                ("{:.10g}", self.payoffs),
                ("{:.6g}", self.exploitability),
            )
        )
        lines = [
            ("payoffs", payoffs),
            ("regrets", f"at most {regrets} with entropies ({asked})"),
            ("exploitability", f"at most {exploited} in the game without entropies"),
            ("found by", f"{where}, {self.steps} steps; {unique}"),
            (
                "certificate",
                str(self.certificate),
            ),
        ]
        if self.distance is not None:
            lines.insert(2, ("l1 distance", f"y within {self.distance.upper:.3g} (logit-tv)"))
        return lines

    def __str__(self) -> str:
        end = "" if self.converged else f", not the {self.target:.3g} asked for ({self.status})"
        return f"regrets at most {max(self.regrets):.3g}{end}; {self.facts()[-2][1]}"
