"""Two first-order methods: the double softmax (DSFP) and the predictive update.

Both are cheap (two and four products an iteration) and come with a rate that is known before they
start: DSFP contracts where r = D/4τ < 1 (theorem dsfp-tv), the predictive update for every τ > 0
(theorem predictive).
"""

from __future__ import annotations

from collections.abc import Callable

from taut._base.array import Array, quietly, to_host
from taut.games._solvers.bookkeeping import Bookkeeping
from taut.games._solvers.duality_gap import (
    StrategyPair,
    answer_columns,
    answer_rows,
    divergence,
    gap,
    judge,
    mixed,
    strategy_pair,
)


@quietly
def dsfp(
    run: Bookkeeping, *, damping: float = 1.0, enough: Callable[[Array, Array], Array] | None = None
) -> None:
    """Y ← (1 − α) y + α T(y) with T(y) = σ(Aᵀσ(−Ay/τ)/τ), until the run's games are solved.

    The run must start from (σ(−Ay/τ), y). The point that is judged in each round is
    (σ(−Ay/τ), T(y)). By linearity A y is known for the damped y as well, so a round costs two
    products. ``enough`` takes the gaps before and after a round and says for which games it is not
    worth going on.
    """
    game, at = run.open("dsfp")
    x, costs, gains, before = at.x, at.costs, at.gains, run.open_gaps()
    products = 1  # the start is an answer already, so the first round needs only its other half
    while run.going:
        y = answer_columns(game, gains)
        answered = game.to_rows(y.weights)
        answer = answer_rows(game, answered)
        now = StrategyPair(x, y, answered, gains)
        gaps = to_host(gap(game, divergence(x, answer), 0.0))  # y answers x, but for rounding
        slow = None if enough is None else enough(before, gaps)
        keep = run.advance(now, gaps, products=products, leave=slow)
        before = gaps
        if damping != 1:
            costs = costs + damping * (answered - costs)
            answer = answer_rows(game, costs)
        if keep is not None:
            game, costs, before, answer = (
                game.take(keep),
                costs[keep],
                before[keep],
                answer.take(keep),
            )
        if run.going:
            x = answer
            gains = game.to_columns(x.weights)
            products = 2


@quietly
def predictive(run: Bookkeeping, *, fraction: float | None = None) -> None:
    """The predictive update of Cen, Wei and Chi with the step of theorem predictive.

    In logits: ū = (1 − s) u + s·(−Ay/τ), then u = (1 − s) u + s·(−Aȳ/τ), and likewise for y, with
    s = 2/(1 + √(1 + 4r²)). The point that is judged is the prediction (x̄, ȳ). With ``fraction``
    a game is left as soon as its gap has fallen to that part of what it was.
    """
    game, at = run.open("predictive")
    start = judge(game, at).gaps
    while run.going:
        step = mixing(game.sensitivity)[:, None]
        tau = game.temperature[:, None]
        kept_x, kept_y = (1 - step) * at.x.logs, (1 - step) * at.y.logs
        x, y = mixed(kept_x - step * at.costs / tau), mixed(kept_y + step * at.gains / tau)
        middle = strategy_pair(game, x, y)
        x = mixed(kept_x - step * middle.costs / tau)
        y = mixed(kept_y + step * middle.gains / tau)
        gaps = judge(game, middle).gaps
        fallen = None if fraction is None else gaps <= fraction * start
        keep = run.advance(middle, gaps, products=4, leave=fallen)
        if run.going:
            at = strategy_pair(game, x, y)
            if keep is not None:
                game, at, start = game.take(keep), at.take(keep), start[keep]


def mixing(r: Array) -> Array:
    """The step s = 2/(1 + √(1 + 4r²)) of the predictive update; its rate is 1 − s = s²r²."""
    return 2 / (1 + (1 + 4 * r * r) ** 0.5)
