"""All logit equilibria of a small game that following branches and a search can find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from taut._base.array import Array, quietly, stop_gradient, to_host
from taut._base.bound import Bound
from taut._base.checks import as_float_array, finite_above_zero, whole_number
from taut._base.norm import Norm, lp
from taut._base.rounding import EPS, plus
from taut.games._files.read import Payoffs
from taut.games._solvers.all_branches import Explorer, TracedBranch
from taut.games._solvers.formulas import LARGEST, SMALLEST
from taut.games._solvers.logit_equations import Equations, Vector, in_own_units
from taut.games._solvers.logit_proof import Judge
from taut.games.branches_answer import LogitBranch, LogitBranches, LogitPoints

COLDEST = 1e-8  # of τ against the largest difference of payoffs: below, rounding hides branches
GAIN = Norm("payoff", "payoff")


@quietly
def logit_branches(
    payoffs: Any,
    temperature: float,
    *,
    starts: int = 40,
    seed: int = 0,
    max_iterations: int = 2000,
    max_branches: int = 100,
    callback: Callable[[int, float], object] | None = None,
) -> LogitBranches:
    """Follow the logit equilibria of a small game of two or more players down to a temperature.

    The principal branch is followed from the uniform strategies, round its folds and through its
    bifurcations. Branches that cross it there are followed in both directions, and so are those
    that Newton's method finds from random strategies at several temperatures. Every point comes
    with upper bounds of its regrets, and most with a proof that an exact logit equilibrium is near.
    That all of them were found is **not** proved: more ``starts`` or another ``seed`` may find
    more. What can be seen is whether the indices at the lowest temperature sum to 1, as those of
    all equilibria do: ``balanced``. While they do not, the search is repeated, twice at most.

    Parameters
    ----------
    payoffs
        What each player gains, and wants large: one array for each of the N players, all of shape
        (n₁, …, n_N), or one of shape (N, n₁, …, n_N), or :class:`Payoffs`. Everything is computed
        in float64 by NumPy.
    temperature
        The lowest temperature τ > 0, in units of payoff. Nash equilibria are approached as τ → 0;
        the exploitability says how far.
    starts
        Random strategies to start from at each of five temperatures, and pure ones at the lowest;
        0 finds only what is connected with the principal branch.
    seed
        Seed of the random strategies.
    max_iterations
        Steps along each branch.
    max_branches
        The largest number of branches that are followed.
    callback
        Called with the step along a branch and its λ as a fraction of the λ wanted; return a true
        value to stop.

    Examples
    --------
    >>> chicken = np.array([[0.0, 7.0], [2.0, 6.0]])
    >>> found = logit_branches([chicken, chicken.T], temperature=0.01)
    >>> print(found)
    3 equilibria at temperature 0.01 (at least 3 exist) on 2 branches with 1 bifurcation
    >>> found.equilibria.strategies[0].round(3)
    array([[0.336, 0.664],
           [1.   , 0.   ],
           [0.   , 1.   ]])
    """
    tables = _tables(payoffs)
    tau = finite_above_zero(temperature, name="temperature")
    starts = whole_number(starts, name="starts", least=0)
    steps = whole_number(max_iterations, name="max_iterations", least=1)
    most = whole_number(max_branches, name="max_branches", least=1)
    rng = np.random.default_rng(whole_number(seed, name="seed", least=0))
    equations, unit = in_own_units(*tables)
    if not (tau >= COLDEST * unit and SMALLEST <= tau <= LARGEST):
        raise ValueError(
            f"a temperature of {tau:.3g} is out of range for payoffs that differ by {unit:.3g}: it "
            f"must be at least {COLDEST:g} of that and in [{SMALLEST:g}, {LARGEST:g}]"
        )
    explorer = Explorer(equations, unit / tau, steps, most, callback, rng)
    explorer.explore(starts)
    judge = Judge(*tables)
    branches = tuple(_branch(equations, judge, one, unit, tau) for one in explorer.branches)
    status = "stopped" if explorer.stopped else "most" if explorer.full else "done"
    crossings = [at.place.point for at in explorer.points]
    return LogitBranches(
        branches=branches,
        equilibria=_points(equations, judge, explorer.ends(), unit, tau),
        bifurcations=_points(equations, judge, crossings, unit, tau),
        temperature=tau,
        status=status,
    )


def _branch(
    equations: Equations, judge: Judge, one: TracedBranch, unit: float, tau: float
) -> LogitBranch:
    points = [place.point for place in one.places if place.point[-1] > 0]  # τ is infinite at λ = 0
    return LogitBranch(_points(equations, judge, points, unit, tau), one.origin, one.ends)


def _points(
    equations: Equations, judge: Judge, points: Sequence[Vector], unit: float, lowest: float
) -> LogitPoints:
    """Points with the bounds of all regrets and distances, judged as they are returned."""
    taus = [lowest if point[-1] == unit / lowest else unit / point[-1] for point in points]
    logs = [equations.split(point) for point in points]
    weights = [[np.exp(part) for part in parts] for parts in logs]
    judged = [judge.players(own, tau) for own, tau in zip(weights, taus, strict=True)]
    players, sizes = len(equations.payoffs), equations.payoffs[0].shape

    def table(name: str) -> Vector:
        values = [[getattr(one, name) for one in players] for players in judged]
        return np.asarray(values, dtype=float).reshape(len(points), players)

    # Weights and exponentials of logs round by at most EPS(2n + 32) in l1, twice.
    rounding = 2 * EPS * (2 * max(sizes) + 32)
    radii = [judge.radius(parts, tau) for parts, tau in zip(logs, taus, strict=True)]
    distances = [min(plus(r, rounding), 2.0) if np.isfinite(r) else np.inf for r in radii]
    return LogitPoints(
        temperature=np.asarray(taus, dtype=float),
        strategies=tuple(
            np.asarray([own[i] for own in weights], dtype=float).reshape(len(points), n)
            for i, n in enumerate(sizes)
        ),
        regrets=_above(table("regret"), GAIN, "logit-regret", "regret"),
        exploitability=_above(table("exploitability"), GAIN, "logit-regret", "exploitability"),
        index=np.asarray([equations.index(point) for point in points], dtype=int),
        distance=_above(np.asarray(distances, dtype=float), lp(1), "logit-newton", "distance"),
    )


def _above(upper: Vector, norm: Norm, theorem: str, quantity: str) -> Bound:
    """An upper bound for each point; NaN counts as unknown, that is infinite."""
    upper = np.where(np.isnan(upper), np.inf, upper)
    where = "strategies over their sums"
    return Bound(np.zeros_like(upper), upper, "upper", norm, where, theorem, quantity=quantity,
                 rounding="proved")  # fmt: skip


def _tables(payoffs: Any) -> list[Vector]:
    """Every player's payoffs in float64, checked, without offsets that come off exactly."""
    if isinstance(payoffs, Payoffs):
        payoffs = (payoffs.row, payoffs.column)
    if not isinstance(payoffs, (list, tuple)) and np.ndim(payoffs) < 1:
        raise TypeError(
            f"payoffs must hold one array for each player, got {type(payoffs).__name__}"
        )
    tables = [_table(part, f"payoffs of player {i + 1}") for i, part in enumerate(payoffs)]
    if len(tables) < 2:
        raise ValueError(f"a game has at least two players; payoffs hold {len(tables)}")
    shape = tables[0].shape
    for i, table in enumerate(tables):
        if table.shape != shape or table.ndim != len(tables) or 0 in shape:
            raise ValueError(
                f"{len(tables)} players need payoffs with {len(tables)} axes, one for each "
                f"player's strategies, all of one shape; those of player {i + 1} have shape "
                f"{table.shape}" + (f", those of player 1 {shape}" if table.shape != shape else "")
            )
    return tables


def _table(part: Array, name: str) -> Vector:
    _, array = as_float_array(part, name=name)
    table = to_host(stop_gradient(array)).astype(np.float64)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        where = tuple(int(k) for k in bad[0])
        raise ValueError(f"{name} must be finite: entry {list(where)} is {table[where]}")
    size = float(np.abs(table).max(initial=0.0))
    if size and not SMALLEST <= size <= LARGEST:
        raise ValueError(
            f"{name} of size {size:.3g} are out of range [{SMALLEST:g}, {LARGEST:g}]: multiply "
            "them and the temperature by a number"
        )
    if not table.size:
        return table
    offset, spread = table.min() + np.ptp(table) / 2, np.ptp(table)
    # Where the offset exceeds the spread, subtracting it is exact; elsewhere it would not help.
    return table - offset if abs(offset) > spread else table
