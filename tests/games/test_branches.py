"""Branches of logit equilibria: known games, every bound against arbitrary precision, searches."""

from __future__ import annotations

import itertools
import json
import math
from functools import cache

import numpy as np
import pytest

from taut import games
from taut.games._solvers.logit_equations import in_own_units
from taut.games._solvers.logit_proof import Judge
from taut.games._solvers.random_starts import random_points, solutions
from tests.helpers.players_oracle import equilibrium_near, true_regrets

CHICKEN = np.array([[0.0, 7.0], [2.0, 6.0]])
STAG = np.array([[4.0, 0.0], [3.0, 3.0]])
PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])
BATTLE = np.array([[3.0, 0.0], [0.0, 2.0]])
# Nine Nash equilibria, the most that a regular 2 × 2 × 2 game has (McKelvey and McLennan 1997).
NINE = np.zeros((3, 2, 2, 2))
NINE[:, 0, 0, 0], NINE[:, 1, 1, 0] = (9, 8, 12), (9, 8, 2)
NINE[:, 1, 0, 1] = NINE[:, 0, 1, 1] = (3, 4, 6)
TWO_PLAYERS = [
    ("chicken", CHICKEN, CHICKEN.T, {1.0, 0.0, 1 / 3}),
    ("stag hunt", STAG, STAG.T, {1.0, 0.0, 0.75}),
    ("matching pennies", PENNIES, -PENNIES, {0.5}),
    ("battle of the sexes", BATTLE, np.diag([2.0, 3.0]), {1.0, 0.0, 0.6}),
    ("prisoner's dilemma", [[3, 0], [5, 1]], [[3, 5], [0, 1]], {0.0}),
]


@cache
def nine():
    """The branches of the game with nine equilibria, down to a temperature of 0.05."""
    return games.logit_branches(NINE, 0.05)


def check(payoffs, temperature, **options):
    """The branches, after all bounds of their equilibria were compared with 300 bits."""
    found = games.logit_branches(payoffs, temperature, **options)
    points = found.equilibria
    for k in range(len(points)):
        check_point(payoffs, points[k])
    return found


def check_point(payoffs, point):
    for i, (regret, gain) in enumerate(true_regrets(payoffs, point.temperature, point.strategies)):
        assert regret <= point.regrets.upper[i]
        assert gain <= point.exploitability.upper[i]
    if point.proved and min(min(own) for own in point.strategies) > 1e-280:
        exact = equilibrium_near(payoffs, point.temperature, point.strategies)
        for own, other in zip(point.strategies, exact, strict=True):
            # The oracle's answer is rounded to floats.
            assert np.abs(own / own.sum() - other).sum() <= point.distance.upper + 1e-15


@pytest.mark.parametrize(
    ("name", "row", "column", "first"), TWO_PLAYERS, ids=[known[0] for known in TWO_PLAYERS]
)
def test_known_games_of_two_players(name, row, column, first):
    found = check(np.array([row, column], dtype=float), 1e-3)
    assert {round(float(x), 2) for x in found.equilibria.strategies[0][:, 0]} == {
        round(x, 2) for x in first
    }
    assert len(found.equilibria) == len(first) == found.at_least
    assert found.balanced
    assert found.status == "done"
    assert np.max(found.equilibria.exploitability.upper) < 5e-3


def test_nine_equilibria_past_the_bifurcation():
    """Gambit's logit_solve_branch ends at λ = 0.597, or leaves the principal branch there."""
    found = nine()
    assert len(found.equilibria) == found.at_least == 9
    principal, crossing = found.branches[:2]
    assert principal.ends == ("uniform", "temperature")
    assert found.bifurcations.scale == pytest.approx([0.596746], abs=1e-5)
    assert crossing.origin == "bifurcation"
    assert len(crossing.folds) == 1
    # In closed form: the first two players stay uniform, the third sees a difference of ½.
    third = 1 / (1 + np.exp(-principal.points.scale / 2))
    np.testing.assert_allclose(principal.points.strategies[2][:, 0], third, atol=1e-9)
    for player in (0, 1):
        np.testing.assert_allclose(principal.points.strategies[player], 0.5, atol=1e-9)


def test_every_point_of_every_branch_is_bounded():
    found = nine()
    for k in range(9):
        check_point(NINE, found.equilibria[k])
    proved = []
    for branch in found.branches:
        proved += branch.points.proved.tolist()
        for k in range(0, len(branch.points), 20):
            check_point(NINE, branch.points[k])
    assert np.mean(proved) > 0.9


def test_more_than_one_direction_at_a_bifurcation():
    """Three like strategies: all 2³ − 1 equilibria come from where two directions are lost."""
    found = check(np.array([np.eye(3), np.eye(3)]), 0.01, starts=0)
    assert len(found.equilibria) == found.at_least == 7
    assert found.bifurcations.scale == pytest.approx([3.0], abs=1e-3)


def test_without_a_search_only_what_is_connected_is_found():
    alone = games.logit_branches([STAG, STAG.T], 0.01, starts=0)
    assert len(alone.branches) == len(alone.equilibria) == 1
    assert len(games.logit_branches([STAG, STAG.T], 0.01).equilibria) == 3


def test_one_equilibrium_where_it_is_hot():
    found = check(NINE, 100.0)
    assert len(found.branches) == len(found.equilibria) == 1


def test_four_players_who_want_a_majority():
    """Each gains by voting as most others do: both unanimous votes are equilibria."""
    sides = np.array(list(itertools.product([1, -1], repeat=4))).reshape(2, 2, 2, 2, 4)
    payoffs = np.moveaxis(sides * (sides.sum(axis=-1, keepdims=True) - sides), -1, 0).astype(float)
    found = check(payoffs, 0.3)
    agreed = [
        min(own[k, 0] for own in found.equilibria.strategies) for k in range(len(found.equilibria))
    ]
    assert max(agreed) > 0.99
    assert found.balanced


@pytest.mark.parametrize(
    "seed", [0, 4, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3, 5, 6, 7, 8))]
)
def test_random_games_against_newton_from_everywhere(seed):
    """Whatever Newton finds from 400 random points at that temperature lies on the branches."""
    rng = np.random.default_rng(seed)
    shape = [(2, 2, 2), (3, 3), (2, 3, 2)][seed % 3]
    payoffs = rng.normal(size=(len(shape), *shape))
    if seed >= 3:
        payoffs = np.round(2 * payoffs)
    equations, unit = in_own_units(*payoffs)
    found = check(payoffs, unit / 20)
    known = np.log(np.concatenate(found.equilibria.strategies, axis=1))
    points = random_points(equations, 20.0, 400, rng)
    for point in solutions(equations, points):
        apart = [equations.shift(point, np.append(one, 20.0)) for one in known]
        assert min(apart) < 1e-4
    assert found.balanced


def test_folds_are_passed_and_loops_close():
    """The backward-bending branch of a 2 × 2 game, and a branch that touches no other."""
    found = games.logit_branches([STAG, STAG.T], 0.01)
    other = found.branches[1]
    assert other.origin == "search"
    assert len(other.folds) == 1
    assert other.ends == ("temperature", "temperature")
    assert sorted(other.points.index[[0, -1]]) == [-1, 1]


@pytest.mark.theorem("logit-regret", "holds")
@pytest.mark.theorem("logit-regret", "falsifiable")
@pytest.mark.parametrize("seed", range(25))
def test_regrets_in_arbitrary_precision(seed):
    """At any strategies, not only at equilibria, and without slack but for rounding."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 4, size=rng.integers(2, 4)))
    payoffs = rng.normal(size=(len(shape), *shape)) * 10.0 ** rng.integers(-3, 4)
    if seed % 3 == 1:
        payoffs = payoffs * 10.0 ** rng.integers(-4, 5, size=payoffs.shape)
    tau = float(np.ptp(payoffs) * 10 ** rng.uniform(-4, 1))
    strategies = [rng.dirichlet(np.full(n, 10 ** rng.uniform(-1.5, 1))) for n in shape]
    truth = true_regrets(payoffs, tau, strategies)
    for judged, (regret, gain) in zip(Judge(*payoffs).players(strategies, tau), truth, strict=True):
        assert regret <= judged.regret
        assert gain <= judged.exploitability
        if regret > 1e-6 * tau:
            assert 0.99 * judged.regret < regret  # nothing smaller would hold


def derivative_of_derivative(payoffs, tau, logits, h, k, t=1e-4):
    """F″(z)[h, k] of one player's payoffs against a second one, by differences."""

    def image(z):
        weights = np.exp(z - z.max())
        return payoffs @ (weights / weights.sum()) / tau

    corners = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    return sum(a * b * image(logits + t * (a * h + b * k)) for a, b in corners) / (4 * t * t)


@pytest.mark.theorem("logit-newton", "attained")
def test_the_second_derivative_is_attained():
    h, k = np.array([1.0, 1, -1, -1]), np.array([1.0, -1, 1, -1])
    payoffs, tau = 3.0 * (h * k)[None], 0.5
    found = derivative_of_derivative(payoffs, tau, np.zeros(4), h, k)
    assert np.abs(found).max() == pytest.approx(3.0 / tau, rel=1e-5)
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(2, 6))
        signs = rng.choice([-1.0, 1.0], size=(3, n))
        some = derivative_of_derivative(3.0 * signs[:1], tau, rng.normal(size=n), *signs[1:])
        assert np.abs(some).max() <= 3.0 / tau * (1 + 1e-5)


@pytest.mark.theorem("logit-newton", "holds")
@pytest.mark.theorem("logit-newton", "falsifiable")
@pytest.mark.parametrize("seed", range(8))
def test_the_radius_reaches_the_equilibrium_and_hardly_further(seed):
    rng = np.random.default_rng(seed)
    shape = [(2, 2, 2), (3, 2)][seed % 2]
    payoffs = rng.normal(size=(len(shape), *shape))
    equations, unit = in_own_units(*payoffs)
    (point, *_) = solutions(equations, random_points(equations, 4.0, 8, rng))
    judge = Judge(*payoffs)
    tau = unit / 4.0
    exact = equilibrium_near(payoffs, tau, [np.exp(part) for part in equations.split(point)])
    for size in (1e-3, 1e-6):
        logits = [np.log(own) + size * rng.normal(size=len(own)) for own in exact]
        radius = judge.radius(logits, tau)
        moved = [z - np.log(own) for z, own in zip(logits, exact, strict=True)]
        # Logits count up to a constant for each player; F is 0 at the best of them.
        away = max(float(np.ptp(part)) / 2 for part in moved)
        assert away <= radius * (1 + 1e-9)
        assert radius < 12 * max(away, size)
    # Where there is no equilibrium near nothing is proved.
    far = [np.log(own) + 3 * rng.normal(size=len(own)) for own in exact]
    away = max(float(np.ptp(z - np.log(own))) / 2 for z, own in zip(far, exact, strict=True))
    assert judge.radius(far, tau) > 0.99 * away


def test_units_and_offsets_do_not_matter():
    one = games.logit_branches([CHICKEN, CHICKEN.T], 0.1)
    for factor, offset in ((1e-9, 0.0), (1e9, 4096e9)):
        payoffs = [factor * CHICKEN + offset, factor * CHICKEN.T + offset]
        other = games.logit_branches(payoffs, 0.1 * factor)
        assert other.at_least == 3
        np.testing.assert_allclose(
            np.sort(one.equilibria.strategies[0][:, 0]),
            np.sort(other.equilibria.strategies[0][:, 0]),
            atol=1e-9,
        )


def test_same_seed_same_answer_and_json():
    one, other = (games.logit_branches([STAG, STAG.T], 0.2, seed=3) for _ in range(2))
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())
    assert len(one.equilibria[:2]) == 2
    assert one.equilibria[0].temperature == 0.2
    assert "9 found, at least 9 exist" in dict(nine().facts())["equilibria"]


def test_limits_are_said():
    stag = [STAG, STAG.T]
    assert games.logit_branches(stag, 0.2, max_branches=1).status == "most"
    stopped = games.logit_branches(stag, 0.2, callback=lambda step, share: step == 3)
    assert stopped.status == "stopped"
    assert stopped.branches[0].ends[1] == "stopped"
    short = games.logit_branches(stag, 0.2, max_iterations=3, starts=0)
    assert short.branches[0].ends[1] == "budget"
    assert not short.balanced
    assert "missing" in dict(short.facts())["indices"]


def test_a_game_in_which_nothing_matters():
    found = games.logit_branches(np.ones((2, 2, 3)), 0.5)
    assert len(found.equilibria) == 1
    np.testing.assert_allclose(found.equilibria.strategies[1][0], 1 / 3)


def test_torch_and_payoffs(torch):
    found = games.logit_branches(torch.tensor(np.array([CHICKEN, CHICKEN.T])), 0.1)
    assert len(found.equilibria) == 3
    payoffs = games.Payoffs(CHICKEN, CHICKEN.T)
    assert len(games.logit_branches(payoffs, 0.1).equilibria) == 3


@pytest.mark.parametrize(
    ("payoffs", "temperature", "says"),
    [
        ([CHICKEN], 1.0, "at least two players"),
        (
            [CHICKEN, np.ones((2, 3))],
            1.0,
            r"those of player 2 have shape \(2, 3\), those of player 1",
        ),
        (np.ones((3, 2, 2)), 1.0, "3 players need payoffs with 3 axes"),
        (
            [CHICKEN, [[0, 1], [math.nan, 0]]],
            1.0,
            r"player 2 must be finite: entry \[1, 0\] is nan",
        ),
        ([CHICKEN, CHICKEN], 0.0, "temperature must be a finite number > 0"),
        ([CHICKEN, CHICKEN], 1e-12, "out of range for payoffs that differ by"),
        ([1e200 * CHICKEN, CHICKEN], 1.0, "out of range"),
        (np.ones((2, 0, 2)), 1.0, "one for each player's strategies"),
    ],
)
def test_wrong_input(payoffs, temperature, says):
    with pytest.raises(ValueError, match=says):
        games.logit_branches(payoffs, temperature)


def test_wrong_options():
    with pytest.raises(TypeError, match="one array for each player"):
        games.logit_branches(3.0, 1.0)
    with pytest.raises(ValueError, match="starts must be at least 0"):
        games.logit_branches([CHICKEN, CHICKEN], 1.0, starts=-1)


def test_pictures(tmp_path):
    pytest.importorskip("altair")
    found = games.logit_branches([CHICKEN, CHICKEN.T], 0.1)
    games.plot_branches(found, tmp_path / "chicken.svg", player=1, strategy=1)
    assert "player 2, strategy 2" in (tmp_path / "chicken.svg").read_text()
    with pytest.raises(ValueError, match="player must be below 2"):
        games.plot_branches(found, tmp_path / "chicken.svg", player=2)
    with pytest.raises(ValueError, match="strategy must be below 2"):
        games.plot_branches(found, tmp_path / "chicken.svg", strategy=2)


def test_files_of_more_players(tmp_path):
    file = tmp_path / "nine.npy"
    np.save(file, NINE)
    assert np.array_equal(games.read_players(file), NINE)
    (tmp_path / "chicken.csv").write_text("0,7\n2,6\n---\n0,2\n7,6\n")
    assert np.array_equal(games.read_players(tmp_path / "chicken.csv"), [CHICKEN, CHICKEN.T])
    np.save(file, np.zeros((2, 2, 2, 2)))
    with pytest.raises(ValueError, match="for N players; its shape is"):
        games.read_players(file)
    pytest.importorskip("pygambit")
    (tmp_path / "nine.nfg").write_text(
        'NFG 1 R "" { "1" "2" "3" } { 2 2 2 }\n\n'
        + " ".join(str(v) for v in np.stack([p.ravel(order="F") for p in NINE], axis=-1).ravel())
    )
    assert np.array_equal(games.read_players(tmp_path / "nine.nfg"), NINE)
