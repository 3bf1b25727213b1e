"""Logit (quantal response) equilibria of two players with payoffs of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from taut._base.array import Array, eps_of, like, quietly, to_host
from taut._base.bound import Bound
from taut._base.checks import finite_above_zero, whole_number
from taut._base.norm import lp
from taut._base.rounding import enlarged, over, root, times
from taut.games._solvers.branch import follow
from taut.games._solvers.duality_gap import Mixed, mixed
from taut.games._solvers.game import Game
from taut.games._solvers.logit_equations import in_own_units
from taut.games._solvers.logit_proof import PlayerJudgement, judge_player
from taut.games._solvers.prepare import prepare
from taut.games._solvers.strategies import strategy
from taut.games.certificate import STRATEGIES
from taut.games.logit_answer import LogitCertificate, LogitEquilibrium

Host = np.ndarray[Any, np.dtype[Any]]


@quietly
def logit_equilibrium(
    row: Array,
    column: Array,
    temperature: float,
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
    temperature
        Temperature τ > 0 in units of payoff (λ = 1/τ).
    tolerance
        The regrets that are wanted, as a fraction of τ or of the range of payoffs, whichever is
        smaller.
    max_iterations
        Steps along the branch.
    callback
        Called with step and λ as a fraction of the λ wanted; return a true value to stop.

    Examples
    --------
    >>> chicken = [[0.0, 7.0], [2.0, 6.0]]
    >>> answer = logit_equilibrium(chicken, np.transpose(chicken), temperature=0.5)
    >>> answer.x.round(6), answer.converged, answer.principal
    (array([0.400538, 0.599462]), True, True)
    """
    tolerance = finite_above_zero(tolerance, name="tolerance")
    limit = whole_number(max_iterations, name="max_iterations", least=0)
    first, second, kind = _prepared(row, column, temperature)
    tau = float(to_host(first.temperature)[0])
    certificate = _certify(first, second, tau)
    equations, unit = in_own_units(to_host(first.payoffs)[0], to_host(second.payoffs)[0])
    smallest = certificate.smallest_temperature
    unique_below = unit / smallest if smallest > 0 else math.inf
    stopped: list[bool] = []

    def watch(step: int, share: float) -> bool:
        stopped.append(callback is not None and bool(callback(step, share)))
        return stopped[-1]

    found = follow(equations, unit / tau, unique_below, limit, watch)
    # Where the branch was lost Newton may still find an equilibrium, but not surely on it.
    point = found.point if found.reached else equations.polish(_at(found.point, unit / tau))
    x, y = (_rounded(np.exp(part), kind) for part in equations.split(point))
    own_x, own_y = (strategy(p.astype(float)) for p in (x, y))
    judged = (
        _judge(first, own_x, to_host(first.payoffs)[0] @ own_y.weights),
        _judge(second, own_y, own_x.weights @ to_host(second.payoffs)[0]),
    )
    target = tolerance * min(tau, unit)
    good = max(one.regret for one in judged) <= target
    status = "converged" if good else "rounding"
    if not found.reached:
        ran_out = "budget" if found.steps >= limit else "branch"
        status = "stopped" if any(stopped) else ran_out
    return LogitEquilibrium(
        x=like(x, kind),
        y=like(y, kind),
        regrets=(judged[0].regret, judged[1].regret),
        distance=_distance(first, second, own_y, certificate) if certificate.contracts else None,
        payoffs=(judged[0].payoff, judged[1].payoff),
        exploitability=(judged[0].exploitability, judged[1].exploitability),
        converged=good,
        status=status,
        target=target,
        principal=found.reached,
        steps=found.steps,
        certificate=certificate,
    )


def _prepared(row: Array, column: Array, temperature: float) -> tuple[Game, Game, Array]:
    """Both players' payoffs, checked, and the row player's as the caller's kind of array."""
    if np.shape(temperature) != ():
        raise ValueError(f"temperature must be one number here, got shape {np.shape(temperature)}")
    first, kind = prepare(row, temperature, work=math.inf, name="row")
    second, other = prepare(column, temperature, work=math.inf, name="column")
    if kind.shape != other.shape:
        raise ValueError(
            "row and column must be matrices of one shape, got "
            f"{tuple(kind.shape)} and {tuple(other.shape)}"
        )
    if kind.ndim != 2:
        raise ValueError(f"one game at a time: row and column have shape {tuple(kind.shape)}")
    return first, second, kind


def _certify(first: Game, second: Game, tau: float) -> LogitCertificate:
    """Theorem logit-tv: the factor and the tau above which it is below 1."""
    d_a, d_b = (float(to_host(game.interaction)[0]) for game in (first, second))
    threshold = times(root(d_a), root(d_b)) / 4
    factor = times(over(threshold, tau), over(threshold, tau))
    bound = Bound(0.0, factor, "upper", lp(1), STRATEGIES, "logit-tv", rounding="proved")
    return LogitCertificate(tau, bound, threshold)


def _at(point: Host, lam: float) -> Host:
    return np.append(point[:-1], lam)


def _rounded(p: Host, kind: Array) -> Host:
    """Probabilities in the precision of the caller's arrays."""
    return p.astype(np.float32) if eps_of(kind) > 1e-10 else p


def _judge(game: Game, own: Mixed, gains: Host) -> PlayerJudgement:
    """Judge a player's strategy by what each pure strategy gains, with rounding added."""
    tau, error = float(to_host(game.temperature)[0]), float(to_host(game.logit_error)[0])
    judged = judge_player(own, gains, tau, error)
    return judged._replace(payoff=judged.payoff + float(to_host(game.offset)[0]))


def _distance(first: Game, second: Game, y: Mixed, certificate: LogitCertificate) -> Bound:
    """‖y − y*‖₁ ≤ ‖y − T(y)‖₁/(1 − factor), and never more than 2."""
    tau, factor = certificate.temperature, float(certificate.factor.upper)
    answer = mixed(to_host(first.payoffs)[0] @ y.weights / tau).weights
    back = mixed(answer @ to_host(second.payoffs)[0] / tau).weights
    # Logits that err by e move a softmax by at most e in l1; what the first answer errs by goes
    # through the second map, whose own factor r_B may be large however small the product is.
    error_x, error_y = (float(to_host(game.logit_error)[0]) for game in (first, second))
    through = float(to_host(second.sensitivity)[0])
    moved = float(np.abs(y.weights - back).sum()) + 4 * (error_y + through * error_x)
    upper = min(enlarged(moved / (1 - factor), len(y.weights) + 16), 2.0)
    return Bound(
        0.0,
        upper,
        "upper",
        lp(1),
        "y over its sum",
        "logit-tv",
        quantity="distance",
        rounding="proved",
    )
