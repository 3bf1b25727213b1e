"""What is proved of a point near a branch: regrets, and an exact logit equilibrium close by.

With z the players' logits, a logit equilibrium is a zero of F(z) = z − U(σ(z))/τ, in which U has a
player's expected payoffs for each own strategy. Its derivative is Lipschitz on the whole space
(theorem logit-newton), so that Newton's step from a point decides whether there is a zero near it
(Newton and Kantorovich). All norms are maxima, and of matrices the largest sums of rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taut._base.rounding import EPS, down, enlarged, over, plus, times
from taut.games._solvers.duality_gap import Mixed, divergence, mixed
from taut.games._solvers.logit_equations import Equations, Vector


class PlayerJudgement(NamedTuple):
    """How a player does: regret and exploitability from above, and the payoff."""

    regret: float
    payoff: float
    exploitability: float


def judge_player(own: Mixed, gains: Vector, tau: float, error: float) -> PlayerJudgement:
    """Judge a player's strategy by what each pure strategy gains, with rounding added.

    ``error`` bounds the rounding of a logit gains/τ.
    """
    root = math.sqrt(float(divergence(own, mixed(gains / tau)))) + error
    mean = float(own.weights @ gains)
    return PlayerJudgement(
        regret=tau * root**2 * (1 + 16 * error),
        payoff=mean,
        exploitability=max(float(gains.max()) - mean, 0.0) + 2 * tau * error,
    )


class Judge:
    """Judges points of one game: payoffs as given, but for offsets that were taken off exactly."""

    def __init__(self, *payoffs: Vector) -> None:
        self.game = Equations(*payoffs)
        self.largest = [float(np.abs(payoff).max()) for payoff in payoffs]
        sizes = payoffs[0].shape
        self.terms = sum(sizes) + 8 * len(sizes) + 16
        self.centred, self.half_range = _centred(payoffs)

    def players(self, weights: list[Vector], tau: float) -> list[PlayerJudgement]:
        """Each player's regret and exploitability, weights divided by their sums.

        A sum of n products errs by n·EPS/2 times the largest payoff, weights sum to 1 but for
        n·EPS/2: together at most EPS times the number of all strategies, times the largest payoff.
        """
        judged = []
        for i, own in enumerate(weights):
            error = EPS * self.terms * (self.largest[i] / tau + 1)
            logs = mixed(np.log(np.maximum(own, 1e-300)))
            judged.append(judge_player(logs, self.game.gains(i, weights), tau, error))
        return judged

    def radius(self, logits: list[Vector], tau: float) -> float:
        """How far at most an exact equilibrium's logits are from these, but for constants.

        Infinite where nothing is proved. Theorem logit-newton, in which an approximate inverse A of
        F′ is enough: with ‖AF‖ ≤ y, ‖1 − AF′‖ ≤ z and ‖A‖L ≤ l, there is exactly one zero within r
        if y − (1 − z)r + lr²/2 ≤ 0 for that r.
        """
        weights = [mixed(part).weights for part in logits]
        defect, defect_error = self._defect(logits, weights, tau)
        matrix, matrix_error = self._derivative(weights, tau)
        try:
            inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        except np.linalg.LinAlgError:
            return math.inf
        size = _norm(inverse)
        if not math.isfinite(size):
            return math.inf
        rounding = times(EPS, len(matrix) + 2, size)  # of a product, relative to the other factor
        step = plus(
            enlarged(float(np.abs(inverse @ defect).max()), 1),
            times(rounding, float(np.abs(defect).max())),
            times(size, defect_error),
        )
        gap = plus(
            enlarged(_norm(np.eye(len(matrix)) - inverse @ matrix), len(matrix)),
            times(rounding, _norm(matrix)),
            times(size, matrix_error),
        )
        others = len(weights) - 1
        bent = over(times(size, others * others, self.half_range), tau)
        return _smallest_root(step, gap, bent)

    def _defect(
        self, logits: list[Vector], weights: list[Vector], tau: float
    ) -> tuple[Vector, float]:
        """F at these logits, each player's shifted by a constant, and what its entries err by.

        Computed weights err by at most EPS(2n + 32) in l1: logits and their exponentials are right
        to EPS(|d|/2 + 2) where the weight is e^d, and |d|e^d is at most 1/e.
        """
        parts, error = [], 0.0
        for i, logit in enumerate(logits):
            gains = self.centred.gains(i, weights) / tau
            left = logit - gains
            parts.append(left - (left.max() + left.min()) / 2)
            rounded = 4 * float(np.abs(logit).max() + np.abs(gains).max())
            error = max(error, EPS * (rounded + 4 * self.terms * (self.largest[i] / tau + 1)))
        return np.concatenate(parts), enlarged(error, 16)

    def _derivative(self, weights: list[Vector], tau: float) -> tuple[Vector, float]:
        """F′ at these strategies, and what the sum of a row errs by at most."""
        game = self.centred
        matrix = np.eye(game.parts[-1].stop)
        for i, own in enumerate(game.parts):
            for j, other in enumerate(game.parts):
                if i != j:
                    table = game.pair(i, j, weights)
                    means = table @ weights[j]
                    matrix[own, other] -= (table - means[:, None]) * weights[j] / tau
        # Payoffs err by 4·terms·EPS of the largest as above; here they stand twice, their
        # difference is taken and multiplied by weights that err themselves.
        once = 4 * EPS * self.terms * (max(self.largest) / tau + 1)
        return matrix, enlarged(6 * (len(weights) - 1) * once, 16)


def _centred(payoffs: tuple[Vector, ...]) -> tuple[Equations, float]:
    """The game without what only the others decide, and half the range of a strategy's payoffs."""
    centred, half = [], 0.0
    for i, payoff in enumerate(payoffs):
        middle = (payoff.max(axis=i, keepdims=True) + payoff.min(axis=i, keepdims=True)) / 2
        part = payoff - middle
        rows = np.moveaxis(part, i, 0).reshape(len(np.moveaxis(part, i, 0)), -1)
        ranges = rows.max(axis=1) - rows.min(axis=1)
        error = 8 * EPS * float(np.abs(payoff).max())
        half = max(half, enlarged(float(ranges.max()) / 2 + error, 4))
        centred.append(part)
    return Equations(*centred), half


def _smallest_root(step: float, gap: float, bent: float) -> float:
    """The smallest r ≥ 0 with step − (1 − gap)r + bent·r²/2 ≤ 0, rounded up; infinite if none."""
    room = down(1 - gap) if gap < 1 else 0.0
    rest = down(room * room) - times(2, step, bent)
    if not (room > 0 and rest > 0):
        return math.inf
    return float(over(times(2, step), down(room + down(math.sqrt(down(rest))))))


def _norm(matrix: Vector) -> float:
    """The largest sum of a row, rounded up."""
    return float(enlarged(float(np.abs(matrix).sum(axis=1).max()), matrix.shape[1]))
