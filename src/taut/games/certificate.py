"""Certificates: whether the double softmax contracts, how fast, and above which temperature."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taut._base.array import Array, to_host
from taut._base.bound import Bound
from taut._base.checks import dual_exponent, exponent, real_number
from taut._base.domain import Described
from taut._base.matrix_norm import matrix_norm
from taut._base.norm import lp
from taut._base.rounding import enlarged, over, reduced, times
from taut.games._solvers.first_order import mixing
from taut.games._solvers.game import Game
from taut.games._solvers.interaction import interaction_above
from taut.games._solvers.prepare import prepare
from taut.games.answer import Answer

Host = np.ndarray[Any, np.dtype[Any]]

AFFORDABLE = 1e10  # operations that certify may spend on an exact D: seconds
STRATEGIES = Described("all pairs of mixed strategies")


@dataclass(frozen=True, eq=False)
class ContractionCertificate(Answer):
    """What is known about a zero-sum game at temperature τ before it is solved.

    Attributes
    ----------
    temperature
        The temperature, in units of payoff.
    factor
        :class:`taut.Bound` on the Lipschitz constant of one round T(y) = σ(Aᵀσ(−Ay/τ)/τ). Below 1
        plain iteration contracts, from every start, to the only equilibrium: see ``contracts``.
    smallest_temperature
        Plain iteration is certified for every τ above this number.
    interaction
        D, the largest size of A_ij − A_kj − A_il + A_kl, in units of payoff: exact but for rounding
        upwards where ``interaction_is_exact``, else an upper bound.
    predictive_rate
        s > 0: an iteration of the predictive update multiplies KL(equilibrium ‖ strategies) by at
        most 1 − s, for every τ > 0 (theorem predictive). Rounded down.
    strategies
        How many strategies each player has.
    """

    temperature: Array
    factor: Bound
    smallest_temperature: Array
    interaction: Array
    interaction_is_exact: bool
    predictive_rate: Array
    strategies: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the batch; () for a single game."""
        return self.factor.shape

    @property
    def contracts(self) -> Any:
        """Whether plain iteration is certified to converge."""
        return self.factor.upper < 1

    def gap_bound(self, *, method: str = "dsfp", damping: float = 1.0) -> tuple[Any, Any]:
        """Numbers (first, rate): after k ≥ 1 iterations the gap is at most first·rate^(k−1).

        From the uniform strategy, by theorem dsfp-gap or predictive; a rate of 1 or more says
        nothing.
        """
        tau = to_host(self.temperature)
        r = to_host(self.interaction) / (4 * tau)
        damping = check_damping(damping)
        if method == "dsfp":
            factor = to_host(self.factor.upper)
            rate, first = ((1 - damping) + damping * factor) ** 2, 2 * tau * factor
        elif method == "predictive":
            if damping != 1:
                raise ValueError("damping is only for method='dsfp'")
            rate = 1 - to_host(self.predictive_rate)
            first = tau * (1 + r * r) * mixing(r) * r * r * math.log(math.prod(self.strategies))
        else:
            raise ValueError(f"method must be 'dsfp' or 'predictive', got {method!r}")
        # A logarithm, a root and a dozen operations err by fewer units than that.
        return _number(enlarged(first, 32)), _number(enlarged(rate, 16))

    def iterations(self, gap: Array, *, method: str = "dsfp", damping: float = 1.0) -> Any:
        """Iterations after which the duality gap is at most ``gap``, from the uniform strategy.

        inf where nothing is certified (theorems dsfp-gap and predictive).
        """
        wanted = to_host(gap).astype(float)
        if not np.all(wanted > 0):
            raise ValueError(f"gap must be a number > 0, got {gap!r}")
        if wanted.shape not in ((), self.shape):
            raise ValueError(f"gap of shape {wanted.shape} does not fit a batch of {self.shape}")
        first, rate = (to_host(part) for part in self.gap_bound(method=method, damping=damping))
        with np.errstate(all="ignore"):
            if method == "predictive":  # its rate may be as near to 1 as numbers get
                falls = -np.log1p(-to_host(self.predictive_rate))
            else:
                falls = -np.log(rate)
            rounds = np.ceil(np.log(first / wanted) / falls * (1 + 1e-12))
        rounds = np.where(falls > 0, np.maximum(rounds, 0.0), math.inf)
        return _number(1 + np.where(first <= wanted, 0.0, rounds))

    def __str__(self) -> str:
        if self.factor.shape:
            share = np.count_nonzero(to_host(self.contracts))
            return f"plain iteration is certified for {share} of {math.prod(self.shape)} games"
        if self.contracts:
            upper, norm = self.factor.upper, self.factor.norm
            said = f"plain iteration contracts by {upper:.4g} a round in {norm}"
        else:
            said = "plain iteration is not certified to contract"
        return (
            f"{said} ({', '.join(self.factor.theorem)}); certified for temperatures above "
            f"{self.smallest_temperature:.6g}; predictive update: 1 - "
            f"{self.predictive_rate:.3g} a step"
        )


def certify(
    payoffs: Array, temperature: Array, *, p: float | None = None
) -> ContractionCertificate:
    """Say before iterating whether the double softmax contracts, and how fast.

    Without ``p`` this is the best certificate: theorem dsfp-tv, which no p-norm beats when D is
    exact. Where the game is so large that D is only bounded, theorem dsfp-2 is tried too.

    Parameters
    ----------
    payoffs
        A, of shape (..., n, m): the row player **pays** xᵀAy to the column player and minimises.
    temperature
        Temperature τ > 0 in units of payoff (λ = 1/τ), one number or one for each game.
    p
        Give the certificate in the p-norm instead, as Nair 2025 does: theorem dsfp-2 for p = 2,
        the corrected theorem dsfp-p for other exponents.

    Examples
    --------
    >>> pennies = [[1.0, -1.0], [-1.0, 1.0]]
    >>> certificate = certify(pennies, temperature=1.5)
    >>> certificate.factor
    Bound(at most 0.444445, l1, all pairs of mixed strategies; dsfp-tv)
    >>> certificate.smallest_temperature, certificate.iterations(1e-10)
    (1.0..., 16.0)
    >>> certify(pennies, temperature=1.5, p=2).factor
    Bound(at most 0.444445, l2, all pairs of mixed strategies; dsfp-2)
    """
    game, kind = prepare(payoffs, temperature, work=AFFORDABLE)
    batch = tuple(kind.shape[:-2])
    if p is not None:
        return _by_norm(game, batch, exponent(p))
    found = total_variation_of(game, batch)
    if game.exact:
        return found
    other = _by_norm(game, batch, 2.0)
    if not batch and other.factor.upper < found.factor.upper:
        return replace(found, factor=other.factor, smallest_temperature=other.smallest_temperature)
    return found


def total_variation_of(game: Game, batch: tuple[int, ...]) -> ContractionCertificate:
    """The certificate of theorem dsfp-tv."""
    d, tau = to_host(game.interaction), to_host(game.temperature)
    return _certificate(batch, d / 4, lp(1), "dsfp-tv", d, tau, game.payoffs.shape, game.exact)


def total_variation_of_one(
    best: float, spread: float, tau: float, sizes: tuple[int, int]
) -> ContractionCertificate:
    """The certificate of theorem dsfp-tv for one game, from D as computed and the range."""
    d = interaction_above(np.asarray([best]), np.asarray([spread]), sizes)
    return _certificate((), d / 4, lp(1), "dsfp-tv", d, np.asarray([tau]), sizes, True)


def _by_norm(game: Game, batch: tuple[int, ...], p: float) -> ContractionCertificate:
    """The certificate of Nair 2025 in the p-norm: the threshold is √(‖A‖_p‖A‖_p′)/2."""
    payoffs = to_host(game.payoffs) + to_host(game.offset)[:, None, None]
    both = [matrix_norm(payoffs, q) for q in (p, dual_exponent(p))]
    threshold = np.sqrt(both[0]) * np.sqrt(both[1]) / 2
    theorem = "dsfp-2" if p == 2 else "dsfp-p"
    d, tau = to_host(game.interaction), to_host(game.temperature)
    return _certificate(batch, threshold, lp(p), theorem, d, tau, game.payoffs.shape, game.exact)


def _certificate(
    batch: tuple[int, ...],
    threshold: Host,
    norm: Any,
    theorem: str,
    d: Host,
    tau: Host,
    shape: tuple[int, ...],
    exact: bool,
) -> ContractionCertificate:
    """Assemble a certificate from the τ above which the factor (threshold/τ)² is below 1."""
    threshold = enlarged(threshold, 8)
    factor = times(over(threshold, tau), over(threshold, tau))
    rate = reduced(mixing(enlarged(d / (4 * tau), 2)), 8)
    zero, factor, threshold, rate, d, tau = (
        shaped(part, batch) for part in (0 * factor, factor, threshold, rate, d, tau)
    )
    bound = Bound(zero, factor, "upper", norm, STRATEGIES, theorem, rounding="proved")
    sizes = (int(shape[-2]), int(shape[-1]))
    return ContractionCertificate(tau, bound, threshold, d, exact, rate, sizes)


def _number(values: Any) -> Any:
    """A plain number for what has no axis."""
    return values if np.shape(values) else float(values)


def shaped(values: Host, batch: tuple[int, ...]) -> Any:
    """One number for each game in the shape of the batch; a plain number for a single game."""
    return values.reshape(batch) if batch else values.reshape(-1)[0].item()


def check_damping(damping: float) -> float:
    """Check α in (0, 1]."""
    value = real_number(damping, name="damping")
    if not 0 < value <= 1:
        raise ValueError(f"damping must be in (0, 1], got {damping!r}; 1 is the plain iteration")
    return value
