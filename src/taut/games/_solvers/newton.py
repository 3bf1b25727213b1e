"""Newton's method in the log domain, following the temperature downwards.

Full steps converge quadratically from near an equilibrium, though their first one often raises the
gap: so nothing is damped. Where they do not converge from the point at hand the temperature is
raised, solved roughly, and lowered again in strides that adapt: along that path the equilibrium
moves smoothly, down to temperatures of a millionth of the payoffs. What the run keeps is the point
with the smallest gap, so Newton can only help.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from taut._base.array import Array, host_view, like, namespace, quietly, to_host
from taut.games._solvers.bookkeeping import Bookkeeping
from taut.games._solvers.direction import direction
from taut.games._solvers.duality_gap import Mixed, StrategyPair, judge, mixed, strategy_pair
from taut.games._solvers.first_order import predictive
from taut.games._solvers.game import Game
from taut.games._solvers.newton_compiled import SMALL, propose
from taut.games._solvers.strategies import uniform
from taut.games._solvers.temperature_path import (
    GENTLE,
    IDLE,
    LONGEST,
    QUICK,
    RISE,
    ROUGH,
    SHORTEST,
    STEPS,
    STRIDE,
)

Host = np.ndarray[Any, np.dtype[Any]]


class _Stages(NamedTuple):
    """Where each game is on its way down: NumPy arrays, one entry a game."""

    temperature: Host  # the temperature at work
    goal: Host  # the temperature wanted
    base: Host  # the last temperature that was solved
    stride: Host
    steps: Host
    idle: Host  # steps since the gap was halved
    least: Host  # the smallest gap of this stage, as a part of its temperature

    def take(self, keep: Host) -> _Stages:
        return _Stages(*(field[keep] for field in self))


@quietly
def newton(run: Bookkeeping, *, solved_at: Host | None = None) -> None:
    """Solve the run's unsolved games; those it gives up are left to other methods.

    ``solved_at`` are the temperatures at which the run's start is an equilibrium already.
    """
    game, at = run.open("newton")
    # With a callback every step must be seen, and the compiled form shows none.
    unseen = run.watch is None and solved_at is None
    if run.going and unseen and max(game.payoffs.shape[1:]) <= SMALL:
        game, at = _compiled(run, game)
    if not run.going:
        return
    stages = _begin(game, at)
    if solved_at is None:
        # From the uniform strategies everything converges at high temperatures.
        base = uniform(game)
        at = at.where(like(stages.temperature == stages.goal, at.costs), base)
    else:
        goal, base = stages.goal, at
        stages = stages._replace(temperature=goal, base=np.maximum(solved_at[run.unsolved], goal))
    staged = game.at(like(stages.temperature, at.costs))
    judged = judge(staged, at)
    factorise = False
    while run.going:
        dx, dy, cost = direction(staged, at, judged, factorise=factorise)
        level = -namespace(dx).log(4 * staged.sensitivity)[:, None]
        at = strategy_pair(game, _moved(at.x, dx, level), _moved(at.y, dy, level))
        judged = judge(staged, at)
        relative = to_host(judged.gaps) / stages.temperature
        final = stages.temperature == stages.goal
        arrived = ~final & (relative <= ROUGH)
        stages = _count(stages, relative)
        failed = ~arrived & ((stages.steps > STEPS) | (stages.idle > IDLE))
        true_gaps = judged.gaps if final.all() else judge(game, at).gaps
        factorise |= bool(failed.any())  # an inexact step may have been too inexact
        stages, lost = _move_on(stages, arrived, failed)
        keep = run.advance(at, true_gaps, products=2 + cost, leave=lost)
        if arrived.any() or failed.any():
            base = at.where(like(arrived, at.costs), base)
            at = base.where(like(failed, at.costs), at)
            staged = game.at(like(stages.temperature, at.costs))
        if keep is not None:
            game, staged, stages = game.take(keep), staged.take(keep), stages.take(keep)
            at, base = at.take(keep), base.take(keep)
        if keep is not None or arrived.any() or failed.any():
            judged = judge(staged, at)


def _moved(player: Mixed, step: Array, level: Array) -> Mixed:
    """The strategy after a step, with the rise of a strategy that enters the support bounded.

    Newton's method takes a strategy of no weight for one that never matters, and may raise it from
    e^−500 to 1 in a step. Up to τ/D, the ``level`` where it begins to matter, it may rise freely.
    """
    xp = namespace(step)
    step = step - xp.sum(player.weights * step, axis=-1, keepdims=True)
    most = xp.maximum(level - player.logs, xp.full_like(step, RISE))
    return mixed(player.logs + xp.minimum(step, most))


def _compiled(run: Bookkeeping, game: Game) -> tuple[Game, StrategyPair]:
    """Let the compiled form do small games; what it leaves unsolved is opened again."""
    if host_view(game.temperature) is None:
        return run.open("newton")
    fields = (game.payoffs, game.temperature, game.interaction)
    log_x, log_y, steps = propose(*fields, *run.allowance())
    at = strategy_pair(game, mixed(log_x), mixed(log_y))
    run.advance(at, judge(game, at).gaps, products=2 + 4 * steps, iterations=steps)
    return run.open("newton")


def persist(run: Bookkeeping) -> None:
    """Newton, and where it gives up the predictive update, which always converges."""
    while len(run.unsolved):
        newton(run)
        if len(run.unsolved):
            predictive(run, fraction=0.01)


def _begin(game: Game, at: StrategyPair) -> _Stages:
    """Start at the wanted temperature where the point at hand is close, else at a gentle one."""
    goal = to_host(game.temperature)
    gentle = to_host(game.interaction) / GENTLE
    close = to_host(judge(game, at).gaps) <= goal
    tau = np.where(close, goal, np.maximum(goal, gentle))
    base = np.maximum(GENTLE * gentle, 2 * tau)
    none, ones = 0 * goal, np.ones_like(goal)
    return _Stages(tau, goal, base, STRIDE * ones, none, none, math.inf * ones)


def _count(stages: _Stages, relative: Host) -> _Stages:
    """Book a step that led to these gaps; NaN counts as no progress."""
    halved = relative < 0.5 * stages.least
    return stages._replace(
        steps=stages.steps + 1,
        idle=np.where(halved, 0, stages.idle + 1) + np.where(np.isfinite(relative), 0, IDLE),
        least=np.where(halved, relative, stages.least),
    )


def _move_on(stages: _Stages, arrived: Host, failed: Host) -> tuple[_Stages, Host]:
    """Lower the temperature where a stage is solved, raise it where it failed."""
    quick = arrived & (stages.steps <= QUICK)
    stride = np.where(quick, np.maximum(stages.stride**1.5, LONGEST), stages.stride)
    base = np.where(arrived, stages.temperature, stages.base)
    lower = np.maximum(stages.goal, stages.temperature * stride)
    tau = np.where(arrived, lower, stages.temperature)
    # A failure leads back to the last temperature that was solved, and on in a shorter stride.
    tau = np.where(failed, np.sqrt(tau * base), tau)
    stride = np.where(failed, tau / base, stride)
    lost = failed & (stride > SHORTEST)
    fresh = arrived | failed
    moved = _Stages(
        np.where(lost, stages.goal, tau),
        stages.goal,
        base,
        stride,
        np.where(fresh, 0, stages.steps),
        np.where(fresh, 0, stages.idle),
        np.where(fresh, math.inf, stages.least),
    )
    return moved, lost
