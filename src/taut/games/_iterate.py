"""Two first-order methods: the double softmax (DSFP) and the predictive update.

Both are cheap (two and four products an iteration) and come with a rate that is known before they
start: DSFP contracts where r = D/4τ < 1 (theorem dsfp-tv), the predictive update for every τ > 0
(theorem predictive).
"""

from __future__ import annotations

from collections.abc import Callable

from taut._array import Array, namespace, quietly
from taut.games._gap import Point, answer_columns, answer_rows, gap, normalise
from taut.games._run import Run


@quietly
def dsfp(
    run: Run, *, damping: float = 1.0, enough: Callable[[Array, Array], Array] | None = None
) -> None:
    """Y ← (1 − α) y + α T(y) with T(y) = σ(Aᵀσ(−Ay/τ)/τ), until the run's games are solved.

    The run must start from (σ(−Ay/τ), y). The point that is judged in each round is
    (σ(−Ay/τ), T(y)). By linearity A y is known for the damped y as well, so a round costs two
    products. ``enough`` takes the gaps before and after a round and says for which games it is not
    worth going on.
    """
    game, at = run.open("dsfp")
    xp = namespace(at.log_x)
    log_x, costs, gains, before = at.log_x, at.costs, at.gains, gap(game, at)
    products = 1  # the start is an answer already, so the first round needs only its other half
    while run.going:
        log_y = answer_columns(game, gains)
        answered = game.to_rows(xp.exp(log_y))
        now = Point(log_x, log_y, answered, gains)
        gaps = gap(game, now)
        costs = answered if damping == 1 else costs + damping * (answered - costs)
        slow = None if enough is None else enough(before, gaps)
        keep = run.advance(now, gaps, products=products, leave=slow)
        before = gaps
        if keep is not None:
            game, costs, before = game.take(keep), costs[keep], before[keep]
        if run.going:
            log_x = answer_rows(game, costs)
            gains = game.to_columns(xp.exp(log_x))
            products = 2


@quietly
def predictive(run: Run, *, fraction: float | None = None) -> None:
    """The predictive update of Cen, Wei and Chi with the step of theorem predictive.

    In logits: ū = (1 − s) u + s·(−Ay/τ), then u = (1 − s) u + s·(−Aȳ/τ), and likewise for y, with
    s = 2/(1 + √(1 + 4r²)). The point that is judged is the prediction (x̄, ȳ). With ``fraction``
    a game is left as soon as its gap has fallen to that part of what it was.
    """
    game, at = run.open("predictive")
    xp = namespace(at.log_x)
    start = gap(game, at)
    costs, gains, log_x, log_y = at.costs, at.gains, at.log_x, at.log_y
    while run.going:
        step = mixing(game.sensitivity)[:, None]
        tau = game.tau[:, None]
        kept_x, kept_y = (1 - step) * log_x, (1 - step) * log_y
        mid_x = normalise(kept_x - step * costs / tau)
        mid_y = normalise(kept_y + step * gains / tau)
        mid_costs, mid_gains = game.to_rows(xp.exp(mid_y)), game.to_columns(xp.exp(mid_x))
        now = Point(mid_x, mid_y, mid_costs, mid_gains)
        log_x = normalise(kept_x - step * mid_costs / tau)
        log_y = normalise(kept_y + step * mid_gains / tau)
        gaps = gap(game, now)
        fallen = None if fraction is None else gaps <= fraction * start
        keep = run.advance(now, gaps, products=4, leave=fallen)
        if keep is not None:
            game, log_x, log_y, start = game.take(keep), log_x[keep], log_y[keep], start[keep]
        if run.going:
            costs, gains = game.to_rows(xp.exp(log_y)), game.to_columns(xp.exp(log_x))


def mixing(r: Array) -> Array:
    """The step s = 2/(1 + √(1 + 4r²)) of the predictive update; its rate is 1 − s = s²r²."""
    return 2 / (1 + (1 + 4 * r * r) ** 0.5)
