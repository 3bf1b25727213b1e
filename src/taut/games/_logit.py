"""Logit (quantal response) equilibria of two players with payoffs of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from taut._array import Array, eps_of, like, quietly, to_host
from taut._bound import Bound, lp
from taut._checks import real_number, whole_number
from taut.games._answer import strategy
from taut.games._branch import follow
from taut.games._certificate import STRATEGIES
from taut.games._game import Game, prepare
from taut.games._gap import Mixed, divergence, mixed
from taut.games._logit_answer import LogitCertificate, LogitEquilibrium
from taut.games._logit_equations import Equations

Host = np.ndarray[Any, np.dtype[Any]]


@quietly
def logit_equilibrium(
    row: Array,
    column: Array,
    tau: float,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 2000,
    callback: Callable[[int, float], object] | None = None,
) -> LogitEquilibrium:
    """Find x = σ(Ay/τ), y = σ(Bᵀx/τ): a logit equilibrium of a two-player game.

    Where (D_A/4τ)(D_B/4τ) < 1 there is exactly one (theorem logit-tv). For smaller τ there may be
    many: the answer is the first point with this τ on the principal branch, which starts from the
    uniform strategies at τ = ∞, and nothing is claimed about others.

    Parameters
    ----------
    row, column
        Payoffs A of the row player and B of the column player, of shape (n, m). Both maximise.
    tau
        Temperature τ > 0 in units of payoff (λ = 1/τ).
    tolerance
        The regrets that are wanted, as a fraction of τ or of the range of payoffs, whichever is
        smaller.
    max_iterations
        Steps along the branch.
    callback
        Called with step and the share of the way, λ over the λ wanted; a true answer stops.

    Examples
    --------
    >>> chicken = [[0.0, 7.0], [2.0, 6.0]]
    >>> answer = logit_equilibrium(chicken, np.transpose(chicken), tau=0.5)
    >>> answer.x.round(6), answer.converged, answer.principal
    (array([0.400538, 0.599462]), True, True)
    """
    if np.shape(tau) != ():
        raise ValueError(f"tau must be one number here, got shape {np.shape(tau)}")
    tolerance = real_number(tolerance, name="tolerance")
    if not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance must be a finite number > 0, got {tolerance}")
    limit = whole_number(max_iterations, name="max_iterations", least=0)
    first, kind = prepare(row, tau, work=math.inf, name="row")
    second, other = prepare(column, tau, work=math.inf, name="column")
    if kind.shape != other.shape:
        raise ValueError(
            "row and column must be matrices of one shape, got "
            f"{tuple(kind.shape)} and {tuple(other.shape)}"
        )
    if kind.ndim != 2:
        raise ValueError(f"one game at a time: row and column have shape {tuple(kind.shape)}")
    tau = float(to_host(first.tau)[0])
    certificate = _certify(first, second, tau)
    equations, unit = _equations(to_host(first.payoffs)[0], to_host(second.payoffs)[0])
    unique_below = unit / certificate.smallest_tau if certificate.smallest_tau > 0 else math.inf
    stopped: list[bool] = []

    def watch(step: int, share: float) -> bool:
        stopped.append(callback is not None and bool(callback(step, share)))
        return stopped[-1]

    found = follow(equations, unit / tau, unique_below, limit, watch)
    # Where the branch was lost Newton may still find an equilibrium, but not surely on it.
    point = found.point if found.reached else equations.polish(_at(found.point, unit / tau))
    target = tolerance * min(tau, unit)
    x, y = (
        _rounded(np.exp(part), kind) for part in (point[: equations.n], point[equations.n : -1])
    )
    answer = _judge(first, second, x, y, target, certificate, principal=found.reached)
    status = answer.status
    if not found.reached:
        ran_out = "budget" if found.steps >= limit else "branch"
        status = "stopped" if any(stopped) else ran_out
    x, y = (like(part, kind) for part in (x, y))
    return replace(answer, x=x, y=y, steps=found.steps, status=status)


def _certify(first: Game, second: Game, tau: float) -> LogitCertificate:
    """Theorem logit-tv: the factor and the temperature above which it is below 1."""
    d_a, d_b = (float(to_host(game.interaction)[0]) for game in (first, second))
    up = 1 + 8 * eps_of(first.tau)
    threshold = math.sqrt(d_a) * math.sqrt(d_b) / 4 * up
    factor = (threshold / tau) ** 2 * up + (5e-324 if threshold > 0 else 0.0)
    bound = Bound(0.0, factor, "upper", lp(1), STRATEGIES, "logit-tv")
    return LogitCertificate(tau, bound, threshold)


def _equations(A: Host, B: Host) -> tuple[Equations, float]:
    """The game in units of the largest difference that a choice can make, and that unit.

    What only the opponent decides shifts all of a player's payoffs alike and drops out.
    """
    A = A - (A.max(axis=0) + A.min(axis=0)) / 2
    B = B - ((B.max(axis=1) + B.min(axis=1)) / 2)[:, None]
    unit = 2 * float(max(np.abs(A).max(), np.abs(B).max())) or 1.0
    return Equations(A / unit, B / unit), unit


def _at(point: Host, lam: float) -> Host:
    return np.append(point[:-1], lam)


def _rounded(p: Host, kind: Array) -> Host:
    """Probabilities in the precision of the caller's arrays."""
    return p.astype(np.float32) if eps_of(kind) > 1e-10 else p


def _judge(
    first: Game,
    second: Game,
    x: Host,
    y: Host,
    target: float,
    certificate: LogitCertificate,
    *,
    principal: bool,
) -> LogitEquilibrium:
    """Regrets and distances of floating-point strategies, with rounding added."""
    tau = certificate.tau
    own_x, own_y = (strategy(p.astype(float)) for p in (x, y))
    gains_x = to_host(first.payoffs)[0] @ own_y.weights
    gains_y = own_x.weights @ to_host(second.payoffs)[0]
    error_x, error_y = (float(to_host(game.logit_error)[0]) for game in (first, second))
    regrets, payoffs, exploited = [], [], []
    for own, gains, error, game in (
        (own_x, gains_x, error_x, first),
        (own_y, gains_y, error_y, second),
    ):
        root = math.sqrt(float(divergence(own, mixed(gains / tau)))) + error
        regrets.append(tau * root**2 * (1 + 16 * error))
        mean = float(own.weights @ gains)
        payoffs.append(mean + float(to_host(game.offset)[0]))
        exploited.append(max(float(gains.max()) - mean, 0.0) + 2 * tau * error)
    worst = max(regrets)
    distance = None
    if certificate.contracts:
        distance = _distance(first, second, own_y, certificate)
    status = "converged" if worst <= target else "rounding"
    return LogitEquilibrium(
        x,
        y,
        (regrets[0], regrets[1]),
        distance,
        (payoffs[0], payoffs[1]),
        (exploited[0], exploited[1]),
        worst <= target,
        status,
        target,
        principal,
        0,
        certificate,
    )


def _distance(first: Game, second: Game, y: Mixed, certificate: LogitCertificate) -> Bound:
    """‖y − y*‖₁ ≤ ‖y − T(y)‖₁/(1 − factor), and never more than 2."""
    tau, factor = certificate.tau, float(certificate.factor.upper)
    answer = mixed(to_host(first.payoffs)[0] @ y.weights / tau).weights
    back = mixed(answer @ to_host(second.payoffs)[0] / tau).weights
    # Logits that err by e move a softmax by at most e in l1; what the first answer errs by goes
    # through the second map, whose own factor r_B may be large however small the product is.
    error_x, error_y = (float(to_host(game.logit_error)[0]) for game in (first, second))
    through = float(to_host(second.sensitivity)[0])
    moved = float(np.abs(y.weights - back).sum()) + 4 * (error_y + through * error_x)
    upper = min(moved / (1 - factor) * (1 + 1e-14), 2.0)
    return Bound(0.0, upper, "upper", lp(1), "y over its sum", "logit-tv", quantity="distance")
