"""Zero-sum games: answers against arbitrary precision, closed forms and the linear program."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut import games
from tests.helpers.game_oracle import equilibrium, hard_games, true_gap

METHODS = ("auto", "dsfp", "predictive", "newton")
TEMPERATURES = (1e6, 10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6)


def spread(A):
    return float(np.ptp(A)) or 1.0


@pytest.mark.parametrize("name", hard_games())
@pytest.mark.parametrize("relative", TEMPERATURES)
def test_every_game_is_solved_at_every_temperature(name, relative):
    A = hard_games()[name]
    tau = relative * spread(A)
    solution = games.solve(A, tau)
    assert solution.converged
    assert solution.status == "converged"
    assert solution.gap <= solution.target <= 1e-10 * tau
    assert solution.x.sum() == pytest.approx(1)
    assert solution.y.sum() == pytest.approx(1)


@pytest.mark.theorem("gap", "holds")
@pytest.mark.parametrize("name", hard_games())
@pytest.mark.parametrize("relative", [1e6, 1.0, 0.05, 1e-3, 1e-6])
def test_answers_are_as_good_as_they_say(name, relative):
    """The true gap, value and distance, in 400 bits, are within what the solution states."""
    A = hard_games()[name]
    tau = relative * spread(A)
    for tolerance in (1e-10, 1e-2):
        s = games.solve(A, tau, tolerance=tolerance)
        assert true_gap(A, tau, s.x, s.y) <= s.gap
        x, y, value = equilibrium(A, tau, s.x, s.y)
        distance = math.hypot(np.abs(s.x - x).sum(), np.abs(s.y - y).sum())
        assert distance <= float(s.distance.upper) + 1e-14
        rounding = 1e-15 * (tau * math.log(A.size + 1) + np.abs(A).max()) * max(A.shape)
        assert s.lower <= value <= s.upper
        assert s.lower <= s.value <= s.upper
        assert s.upper - s.lower <= 2 * s.gap + 1e3 * rounding
        assert s.payoff == pytest.approx(
            x @ A @ y, abs=3 * spread(A) * distance + rounding + 1e-300
        )
        exploited = (A.T @ s.x).max() - (A @ s.y).min()
        assert exploited <= s.exploitability + 1e-15 * np.abs(A).max()
        assert s.exploitability <= s.gap + tau * math.log(A.size) * (1 + 1e-12) + 1e3 * rounding


@pytest.mark.theorem("gap", "attained")
@pytest.mark.theorem("gap", "falsifiable")
def test_bounds_say_what_they_are():
    """Norm, domain, theorem and rounding, also in what goes to JSON."""
    answer = games.solve([[2.0, -1.0], [-1.0, 1.0]], 3.0)
    general = games.logit_equilibrium([[2.0, -1.0], [-1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], 3.0)
    for record, bound, norm, domain, theorem in (
        (answer, "distance", "l2 over the players' l1", "x and y over their sums", "gap"),
        (answer.certificate, "factor", "l1", "all pairs of mixed strategies", "dsfp-tv"),
        (general, "distance", "l1", "y over its sum", "logit-tv"),
        (general.certificate, "factor", "l1", "all pairs of mixed strategies", "logit-tv"),
    ):
        found = getattr(record, bound)
        assert (str(found.norm), str(found.domain), found.theorem) == (norm, domain, (theorem,))
        assert found.rounding == "proved"
        told = record.to_dict()[bound]
        assert (told["norm"], told["domain"], told["theorem"]) == (norm, domain, [theorem])
        assert (told["upper"], told["rounding"]) == (found.upper, "proved")


def test_the_distance_bound_is_tight():
    """Near the uniform equilibrium of a fading game the bound is met, so 0.99 of it fails."""
    A, tau = np.zeros((2, 2)), 1.0
    x, y = np.array([0.501, 0.499]), np.array([0.501, 0.499])
    distance = math.hypot(*(np.abs(s - 0.5).sum() for s in (x, y)))
    bound = math.sqrt(2 * true_gap(A, tau, x, y) / tau)
    assert 0.99 * bound < distance <= bound


@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_any_pair_has_the_gap_of_its_divergences(seed, exponent):
    """Where both sides are far from equilibrium the gap equals the two guaranteed values' gap."""
    from taut.games._solvers.duality_gap import judge, mixed, strategy_pair
    from taut.games._solvers.prepare import prepare

    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 7, size=2)
    A, tau = rng.normal(size=(n, m)), 10.0**exponent
    x, y = (rng.dirichlet(np.ones(k)) for k in (n, m))
    game, _ = prepare(A, tau)
    at = strategy_pair(game, mixed(np.log(x)[None]), mixed(np.log(y)[None]))
    found = float(judge(game, at).gaps[0])
    exact = true_gap(A, tau, x, y)
    assert exact <= found <= exact * (1 + 1e-9) + 1e-20 * (tau + 1 / tau)

    def entropy(p):
        return -p @ np.log(p)

    gains, costs = A.T @ x / tau, -A @ y / tau
    above = tau * np.logaddexp.reduce(gains) - tau * entropy(x)
    below = tau * entropy(y) - tau * np.logaddexp.reduce(costs)
    assert above - below == pytest.approx(exact, rel=1e-6, abs=1e-12 * (1 + tau))


@pytest.mark.parametrize("method", METHODS)
def test_methods_agree(method):
    A = np.random.default_rng(3).normal(size=(12, 9))
    tau = 1.5 * games.certify(A, 1.0).smallest_temperature
    solution = games.solve(A, tau, method=method)
    x, _, value = equilibrium(A, tau, solution.x, solution.y)
    assert solution.method in (method, "newton" if method == "auto" else "dsfp")
    assert np.abs(solution.x - x).sum() <= solution.distance.upper
    assert solution.value == pytest.approx(value, abs=1e-9)


def test_two_by_two_by_bisection():
    """2×2 games come down to one equation for the row player's first probability."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        A, tau = rng.normal(size=(2, 2)) * 3, 10 ** rng.uniform(-1.5, 1)

        def second(p, A=A, tau=tau):
            q = 1 / (1 + np.exp(np.clip(-(np.array([p, 1 - p]) @ A @ [1, -1]) / tau, -700, 700)))
            back = 1 / (1 + np.exp(np.clip((np.array([1, -1]) @ A @ [q, 1 - q]) / tau, -700, 700)))
            return back - p

        low, high = 0.0, 1.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if second(middle) > 0 else (low, middle)
        assert games.solve(A, tau).x[0] == pytest.approx(low, abs=2e-5)


def test_known_answers():
    rock_paper_scissors = [[0, 1, -1], [-1, 0, 1], [1, -1, 0]]
    for tau in (1e-4, 0.1, 10.0):
        solution = games.solve(rock_paper_scissors, tau)
        np.testing.assert_allclose(solution.x, 1 / 3, atol=1e-12)
        assert solution.value == pytest.approx(0, abs=1e-12)
    # Without interaction each player answers to constants of their own.
    rows, columns = np.array([1.0, 2.0, 4.0]), np.array([0.0, 3.0])
    solution = games.solve(rows[:, None] + columns, 0.7)
    np.testing.assert_allclose(solution.x, np.exp(-rows / 0.7) / np.exp(-rows / 0.7).sum())
    np.testing.assert_allclose(solution.y, np.exp(columns / 0.7) / np.exp(columns / 0.7).sum())


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 1e6, 1e12])
def test_units_do_not_matter(factor):
    """Payoffs and τ times c give the same strategies and c times the value."""
    A = np.random.default_rng(0).normal(size=(6, 7))
    one, other = games.solve(A, 0.05), games.solve(factor * A, factor * 0.05)
    np.testing.assert_allclose(one.x, other.x, atol=1e-9)
    assert other.value == pytest.approx(factor * one.value, rel=1e-9)
    assert one.iterations == other.iterations


def test_batches_are_their_games():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(3, 4, 6, 5)) * np.array([0.01, 1, 100, 1])[:, None, None]
    tau = rng.uniform(0.01, 2, size=(3, 4))
    batch = games.solve(A, tau)
    assert batch.x.shape == (3, 4, 6)
    assert batch.converged.all()
    assert batch.certificate.factor.shape == batch.gap.shape == (3, 4)
    for k in np.ndindex(3, 4):
        one = games.solve(A[k], tau[k])
        assert np.abs(batch.x[k] - one.x).sum() <= batch.distance.upper[k] + one.distance.upper
        assert batch.value[k] == pytest.approx(one.value, abs=1e-9 * spread(A[k]))
        assert true_gap(A[k], tau[k], batch.x[k], batch.y[k]) <= batch.gap[k]
    assert "12 of 12" in str(batch)


@pytest.mark.parametrize("method", METHODS)
def test_large_batches_with_games_of_all_kinds(method):
    rng = np.random.default_rng(2)
    A = np.concatenate([rng.normal(size=(40, 4, 3)), rng.integers(-1, 2, size=(40, 4, 3))])
    tau = 2.1 * np.abs(A).max(axis=(1, 2)) + 0.1 if method == "dsfp" else rng.uniform(0.02, 1, 80)
    batch = games.solve(A, tau, method=method)
    assert batch.converged.all()
    for k in range(0, 80, 13):
        assert true_gap(A[k], tau[k], batch.x[k], batch.y[k]) <= batch.gap[k]


def test_torch_in_torch_out(torch):
    A = np.random.default_rng(1).normal(size=(2, 5, 4))
    expected = games.solve(A, 0.3)
    for dtype in (torch.float64, torch.float32):
        found = games.solve(torch.tensor(A, dtype=dtype, requires_grad=True), torch.tensor(0.3))
        assert found.x.dtype == dtype
        assert not found.x.requires_grad
        np.testing.assert_allclose(found.x.numpy(), expected.x, atol=1e-5)
        assert found.converged.all()
    exact = torch.tensor(A, dtype=torch.float32).double().numpy()
    for k in range(2):
        assert (
            true_gap(
                exact[k],
                float(np.float64(torch.tensor(0.3))),
                *(s[k].double().numpy() for s in (found.x, found.y)),
            )
            <= found.gap[k]
        )
    sharp = games.solve(torch.tensor([[1.0, -2.0], [-1.0, 3.0]]), 1e-4, tolerance=1e-13)
    assert sharp.status == "rounding"  # of the strategies to float32
    half = games.solve(torch.tensor(A[0], dtype=torch.float16), 0.3)
    assert half.x.dtype == torch.float32


def test_solvers_run_on_tensors_as_on_another_device(torch, monkeypatch):
    """Where the host has no view of an array, the solvers work on the array itself."""
    from taut.games._solvers import newton as _newton
    from taut.games._solvers import prepare as _prepare
    from taut.games._solvers import strategies as _strategies

    for module in (_prepare, _strategies, _newton):
        monkeypatch.setattr(module, "host_view", lambda x: None)
    A = np.random.default_rng(4).normal(size=(3, 6, 5))
    for method in METHODS:
        tau = 5.0 if method == "dsfp" else 0.05
        found = games.solve(torch.tensor(A), tau, method=method)
        assert found.converged.all()
        assert isinstance(found.x, torch.Tensor)
        expected = games.solve(A, tau)
        np.testing.assert_allclose(found.x.numpy(), expected.x, atol=1e-4)
    found = games.solve(torch.tensor(A), 0.5, start=torch.full((5,), 0.2))
    assert found.converged.all()


@pytest.mark.parametrize("relative", [0.3, 0.01, 1e-3])
def test_large_games_by_conjugate_gradients(relative, monkeypatch):
    from taut.games._solvers import direction as _direction

    monkeypatch.setattr(_direction, "DIRECT", 10)
    A = np.random.default_rng(6).normal(size=(60, 40))
    solution = games.solve(A, relative * spread(A), method="newton")
    assert solution.converged
    assert true_gap(A, relative * spread(A), solution.x, solution.y) <= solution.gap


# Games in which a strategy of no weight at all enters the support within a sliver of τ.
ENTERING = [
    ([[-0.6, -2.0], [-5000.0, 12000.0]], 0.017),
    ([[-0.6, -2.0], [-5000.0, 12000.0], [-0.2, 0.7]], 0.17),
]


@pytest.mark.parametrize(("A", "tau"), ENTERING)
def test_strategies_that_enter_suddenly(A, tau):
    solution = games.solve(A, tau)
    assert solution.converged
    assert solution.method == "newton"
    assert true_gap(np.array(A), tau, solution.x, solution.y) <= solution.gap


@pytest.mark.parametrize("kind", ["rows", "entries", "heavy tails"])
def test_payoffs_of_mixed_sizes(kind):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=rng.integers(2, 30, size=2))
        if kind == "rows":
            A = A * 10 ** rng.uniform(-6, 6, size=(len(A), 1))
        elif kind == "entries":
            A = A * 10 ** rng.uniform(-8, 8, size=A.shape)
        else:
            A = rng.standard_cauchy(size=A.shape)
        for relative in (1e-4, 1e-6):
            assert games.solve(A, relative * np.ptp(A)).converged


def test_interaction_lost_to_rounding_is_not_lost():
    """1 − 2^−60 rounds to 1, so every computed D is 0; the true one is 2^−60."""
    certificate = games.certify([[1.0, 1.0], [2.0**-60, 0.0]], 1e-9)
    assert certificate.interaction >= 2.0**-60
    assert certificate.factor.upper > 0
    assert games.certify([[1.0, 2.0, 5.0]], 1.0).interaction == 0


def test_integers_at_the_edge_of_rounding():
    rng = np.random.default_rng(0)
    for tau in (1e-8, 1e-10, 1e-12):
        for _ in range(10):
            A = rng.integers(-2, 3, size=(3, 3)).astype(float)
            A[0, 0] += 0.5
            solution = games.solve(A, tau, max_iterations=300)
            assert true_gap(A, tau, solution.x, solution.y) <= solution.gap


def test_structured_games_by_conjugate_gradients():
    """Inexact steps fail where few directions matter: a factorisation then takes over."""
    rng = np.random.default_rng(0)
    low_rank = rng.normal(size=(410, 14)) @ rng.normal(size=(14, 410))
    blocks = np.kron(rng.normal(size=(20, 20)), np.ones((21, 21)))
    for A in (low_rank, blocks):
        solution = games.solve(A, 1e-5 * np.ptp(A))
        assert solution.converged
        assert solution.iterations < 200


def test_annealing_to_the_limits_of_rounding():
    for A in (
        np.random.default_rng(0).normal(size=(60, 60)),
        np.random.default_rng(0).choice([-1.0, 1.0], (20, 20)),
    ):
        nash = games.anneal(A, tolerance=1e-8)
        assert nash.converged
        assert nash.iterations < 1000
    large = games.anneal(1e14 * np.array([[0, 2, -1], [-2, 0, 1], [1, -1, 0.0]]))
    np.testing.assert_allclose(large.x, [0.25, 0.25, 0.5], atol=1e-5)


def test_exploitability_does_not_see_the_offset():
    A = np.random.default_rng(0).integers(-3, 4, size=(5, 5)).astype(float)
    plain, shifted = games.solve(A, 1.0), games.solve(1e12 + A, 1.0)
    assert shifted.exploitability == pytest.approx(plain.exploitability, rel=1e-5)
    assert games.solve(A, 1e12).exploitability < 20


def test_failure_is_said():
    """Plain iteration below its threshold cycles; it must not claim anything."""
    pennies = [[1.0, -1.0], [-1.0, 1.2]]
    solution = games.solve(pennies, 0.2, method="dsfp", max_iterations=500)
    assert not solution.converged
    assert solution.status == "budget"
    assert solution.gap > 1e-3
    assert "not the" in str(solution)
    assert true_gap(np.array(pennies), 0.2, solution.x, solution.y) <= solution.gap
    assert games.solve(pennies, 0.2, max_iterations=0).iterations == 0
    rounding = games.solve(np.random.default_rng(0).normal(size=(5, 5)), 1e-3, tolerance=1e-40)
    assert rounding.status == "rounding"
    assert not rounding.converged


def test_callback_sees_and_stops():
    seen = []
    A = np.random.default_rng(0).normal(size=(8, 8))
    solution = games.solve(A, 0.001, callback=lambda *now: seen.append(now) or len(seen) == 3)
    assert solution.status == "stopped"
    assert [count for count, _ in seen] == [1, 2, 3]
    assert all(after <= before for (_, before), (_, after) in pairwise(seen))


def test_start_helps():
    A = np.random.default_rng(0).normal(size=(30, 30))
    cold = games.solve(A, 0.02)
    warm = games.solve(A, 0.02, start=cold.y)
    assert warm.iterations < cold.iterations
    assert games.solve(A, 0.02, start=np.eye(30)[3]).converged


# ------------------------------------------------------------------------------------- annealing


@pytest.mark.parametrize("name", hard_games())
def test_annealing_against_the_linear_program(name):
    from scipy.optimize import linprog

    A = hard_games()[name]
    nash = games.anneal(A)
    assert nash.converged
    assert nash.exploitability <= nash.target
    exploited = (A.T @ nash.x).max() - (A @ nash.y).min()
    assert exploited <= nash.exploitability + 4e-16 * np.abs(A).max()
    n, m = A.shape
    scale = np.abs(A).max() or 1.0
    program = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.column_stack([A.T / scale, -np.ones(m)]),
        b_ub=np.zeros(m),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
    )
    slack = 1e-7 * scale
    assert nash.lower - slack <= program.fun * scale <= nash.upper + slack


def test_annealing_batches_and_budgets(torch):
    A = np.random.default_rng(0).normal(size=(2, 3, 5, 6))
    nash = games.anneal(A)
    assert nash.x.shape == (2, 3, 5)
    assert nash.converged.all()
    assert "6 of 6" in str(nash)
    single = games.anneal(torch.tensor(A[0, 0], dtype=torch.float32))
    assert single.x.dtype == torch.float32
    assert single.converged
    short = games.anneal(A[0, 0], tolerance=1e-9, max_iterations=3)
    assert not short.converged
    assert "not the" in str(short)
    taus = []
    games.anneal(A[0, 0], callback=lambda tau, _: taus.append(tau) or len(taus) == 2)
    assert len(taus) == 2
    assert taus[1] < taus[0]


@pytest.mark.parametrize("name", hard_games())
def test_one_small_game_is_answered_as_in_a_batch(name):
    """One game is solved in a single compiled call, a batch by array operations."""
    A = hard_games()[name]
    tau = 0.1 * spread(A)
    one, other = games.solve(A, tau), games.solve(A[None], tau)[0]
    facts = ("converged", "status", "method", "target")
    assert [getattr(one, k) for k in facts] == [getattr(other, k) for k in facts]
    assert one.certificate.to_dict() == other.certificate.to_dict()
    assert abs(one.iterations - other.iterations) <= 2
    assert one.products == (4 + 4 * one.iterations if one.iterations else 2)
    assert one.lower <= other.upper
    assert other.lower <= one.upper
    apart = np.hypot(np.abs(one.x - other.x).sum(), np.abs(one.y - other.y).sum())
    assert apart <= one.distance.upper + other.distance.upper
    size = np.abs(A - np.mean(A)).max()
    assert abs(one.exploitability - other.exploitability) <= (2 * apart + 1e-12) * size


def test_the_certificate_is_of_the_payoffs_that_were_solved():
    """It is put together late, from numbers: neither the payoffs nor a pickle can change it."""
    A = np.random.default_rng(0).normal(size=(5, 4))
    expected = games.certify(A, 0.5).to_dict()
    solution = games.solve(A, 0.5)
    A *= 3
    again = pickle.loads(pickle.dumps(solution))
    assert solution.certificate.to_dict() == again.certificate.to_dict() == expected
    assert solution.certificate is solution.certificate
    with pytest.raises(FrozenInstanceError):
        solution.certificate = None
    assert replace(solution, gap=1.0).certificate is solution.certificate
