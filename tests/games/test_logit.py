"""General-sum logit equilibria: unique where certified, the principal branch elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from taut import games
from tests.games.test_theorems import both, ratio, steepest

CHICKEN = np.array([[0.0, 7.0], [2.0, 6.0]])
PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])


def true_regrets(A, B, tau, x, y):
    """τKL(x ‖ σ(Ay/τ)) and the same for y, of the exact floating-point strategies, in Arb."""
    ctx.prec = 400
    p, q = ([arb(float(w)) for w in s] for s in (x, y))
    p, q = ([w / sum(s, arb(0)) for w in s] for s in (p, q))

    def regret(own, gains):
        top = max(float(g.mid()) for g in gains)
        total = sum(((g - top) / arb(tau)).exp() for g in gains)
        logs = [(g - top) / arb(tau) - total.log() for g in gains]
        terms = (w * (w.log() - log) for w, log in zip(own, logs, strict=True) if w != 0)
        return float((arb(tau) * sum(terms, arb(0))).mid())

    rows = [sum((arb(float(a)) * w for a, w in zip(row, q, strict=True)), arb(0)) for row in A]
    columns = [sum((arb(float(b)) * w for b, w in zip(c, p, strict=True)), arb(0)) for c in B.T]
    return regret(p, rows), regret(q, columns)


def check(A, B, tau, **options):
    answer = games.logit_equilibrium(A, B, tau, **options)
    for found, bound in zip(
        true_regrets(A, B, tau, answer.x, answer.y), answer.regrets, strict=True
    ):
        assert found <= bound
    return answer


@pytest.mark.theorem("logit-tv", "holds")
@pytest.mark.parametrize("seed", range(20))
def test_no_game_breaks_the_certificate(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 6, size=2)
    A, B = (rng.normal(size=(n, m)) * 10 ** rng.uniform(-1, 1) for _ in range(2))
    tau = float(10 ** rng.uniform(-0.5, 0.5))
    factor = games.logit_equilibrium(A, B, tau, max_iterations=5).certificate.factor.upper
    assert steepest(A, B, tau, 1, rng) <= factor


@pytest.mark.theorem("logit-tv", "attained")
@pytest.mark.theorem("logit-tv", "falsifiable")
def test_coordination_attains_the_certificate():
    """A = B = pennies: the factor is met at the centre, and at 1 two more equilibria appear."""
    y, z = np.array([0.5, 0.5]), np.array([0.5 + 1e-5, 0.5 - 1e-5])
    for tau in (0.5, 1.3):
        bound = games.logit_equilibrium(PENNIES, PENNIES, tau).certificate.factor.upper
        assert 0.999 * bound < ratio(PENNIES, PENNIES, tau, y, z, 1) <= bound
    assert games.logit_equilibrium(PENNIES, PENNIES, 1.01).certificate.contracts
    below = games.logit_equilibrium(PENNIES, PENNIES, 0.9)
    assert not below.certificate.contracts
    assert below.distance is None
    start = np.array([0.9, 0.1])
    for _ in range(500):
        start = both(PENNIES, PENNIES, 0.9, start)
    assert start[0] > 0.6  # another equilibrium
    np.testing.assert_allclose(below.y, 0.5)  # the principal branch keeps the symmetry


def test_the_distance_holds():
    rng = np.random.default_rng(0)
    for _ in range(20):
        A, B = (rng.normal(size=(4, 3)) for _ in range(2))
        threshold = games.logit_equilibrium(
            A, B, 1.0, max_iterations=5
        ).certificate.smallest_temperature
        tau = threshold * rng.uniform(1.01, 3)
        answer = check(A, B, tau)
        assert answer.converged
        y = answer.y
        for _ in range(3000):
            y = both(A, B, tau, y)
        assert np.abs(answer.y - y).sum() <= answer.distance.upper
        assert answer.steps == 0


def test_the_distance_holds_where_one_player_hardly_interacts():
    """r_A is tiny, r_B large: rounding of the first answer grows by r_B, not by √(r_A r_B)."""
    A = np.array(
        [[2023.4237060546875, -3588.09619140625], [2023.4237060546875, -3588.095947265625]]
    )
    B = np.array([[2048.0, -2047.1182833547425], [-2048.0, 2048.8817166452577]])
    answer = games.logit_equilibrium(A.astype(np.float32), B, 1.0)
    ctx.prec = 400
    y = [arb(0.5), arb(0.5)]

    def softmax(z):
        weights = [(value - z[0]).exp() for value in z]
        return [w / sum(weights, arb(0)) for w in weights]

    for _ in range(400):
        x = softmax(
            [sum((arb(float(a)) * w for a, w in zip(row, y, strict=True)), arb(0)) for row in A]
        )
        y = softmax(
            [sum((arb(float(b)) * w for b, w in zip(c, x, strict=True)), arb(0)) for c in B.T]
        )
        y = [arb(w.mid()) for w in y]
    found = answer.y.astype(float) / answer.y.astype(float).sum()
    true = sum(abs(float((arb(float(p)) - q).mid())) for p, q in zip(found, y, strict=True))
    assert true <= answer.distance.upper


# Strategies on the principal branch to 12 digits, from 50-digit arithmetic.
KNOWN = [
    ("chicken", CHICKEN, CHICKEN.T, 1 / 2, 0.400537600868),
    ("chicken, sharp", CHICKEN, CHICKEN.T, 1e-3, 0.333564036399),
    ("prisoners", [[3, 0], [5, 1]], [[3, 5], [0, 1]], 1 / 3, 0.0420423168237),
    ("battle", [[2, 0], [0, 1]], [[1, 0], [0, 2]], 1 / 3, 0.614744463411),
    ("coordination", np.eye(2), np.eye(2), 1 / 3, 0.5),
    ("coordination of three", np.eye(3), np.eye(3), 1e-3, 1 / 3),
    ("coordination at the pitchfork", np.eye(2), np.eye(2), 1 / 2, 0.5),
    ("before a fold", [[9, 1], [9, 4]], [[12, 1], [7, 11]], 1 / 0.7136, 0.370589108949),
    ("after a fold", [[9, 1], [9, 4]], [[12, 1], [7, 11]], 1 / 0.7138, 0.172127467156),
    ("weak dominance", [[1, 1], [1, 0]], [[1, 1], [1, 0]], 1e-6, 1 - 1.1383347622e-5),
    ("asymmetric pennies", [[320, 40], [40, 80]], [[40, 80], [80, 40]], 20.0, 0.817987859143),
    ("tilted coordination", [[1 + 1e-6, 0], [0, 1]], [[1, 0], [0, 1]], 1 / 50, 1.0),
]


@pytest.mark.parametrize(("name", "A", "B", "tau", "first"), KNOWN, ids=[k[0] for k in KNOWN])
def test_known_answers(name, A, B, tau, first):
    answer = check(np.array(A, dtype=float), np.array(B, dtype=float), tau)
    assert answer.converged
    assert answer.principal
    assert answer.x[0] == pytest.approx(first, abs=2e-12 if "fold" not in name else 1e-10)


@pytest.mark.parametrize("factor", [1e-12, 1e6, 1e12])
def test_units_do_not_matter(factor):
    answer = check(factor * CHICKEN, factor * CHICKEN.T, factor / 2)
    assert answer.x[0] == pytest.approx(0.400537600868, abs=1e-11)
    assert answer.converged


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("relative", [1e6, 1.0, 0.1, 1e-2, 1e-4])
def test_random_games_at_all_temperatures(seed, relative):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 7, size=2)
    A, B = rng.normal(size=(2, n, m))
    if seed % 4 == 1:
        A, B = np.repeat(A, 2, axis=0), np.repeat(B, 2, axis=0)
    if seed % 4 == 2:
        A, B = np.round(A), np.round(B)
    spread = max(np.ptp(A), np.ptp(B)) or 1.0
    answer = check(A, B, relative * spread)
    assert answer.converged, answer
    gain = (A @ answer.y).max() - answer.x @ A @ answer.y
    assert gain <= answer.exploitability[0]


def test_zero_sum_games_have_one_answer():
    """Two ways to the same equilibrium, which is unique whatever τ is."""
    A = np.random.default_rng(7).normal(size=(6, 5))
    for tau in (2.0, 0.1, 1e-3):
        one, other = games.solve(A, tau), check(-A, A, tau)
        np.testing.assert_allclose(one.x, other.x, atol=1e-5)


@given(st.integers(0, 1000))
def test_relabelling_relabels(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, 3, 4))
    rows, columns = rng.permutation(3), rng.permutation(4)
    one = games.logit_equilibrium(A, B, 0.1)
    other = games.logit_equilibrium(A[rows][:, columns], B[rows][:, columns], 0.1)
    if one.principal and other.principal:
        np.testing.assert_allclose(one.x[rows], other.x, atol=1e-5)


def test_failure_is_said():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, 8, 8))
    short = check(A, B, 1e-4, max_iterations=3)
    assert not short.principal
    assert "not shown to lie on the principal branch" in str(short)
    assert short.status == "budget"
    stopped = check(A, B, 1e-4, callback=lambda step, share: step == 2)
    assert not stopped.principal
    assert stopped.status == "stopped"
    rounding = games.logit_equilibrium(A, B, 1.0, tolerance=1e-60)
    assert rounding.status == "rounding"
    assert not rounding.converged
    assert "asked for" in str(rounding)


def test_torch_in_torch_out(torch):
    answer = games.logit_equilibrium(
        torch.tensor(CHICKEN, dtype=torch.float32), torch.tensor(CHICKEN.T.copy()).float(), 0.5
    )
    assert answer.x.dtype == torch.float32
    assert float(answer.x[0]) == pytest.approx(0.4005376, abs=1e-6)
    x, y = answer.x.double().numpy(), answer.y.double().numpy()
    for found, bound in zip(
        true_regrets(CHICKEN, CHICKEN.T, 0.5, x, y), answer.regrets, strict=True
    ):
        assert found <= bound
    assert answer.converged


def test_wrong_input():
    with pytest.raises(ValueError, match="matrices of one shape"):
        games.logit_equilibrium(CHICKEN, np.ones((2, 3)), 1.0)
    with pytest.raises(ValueError, match="one game at a time"):
        games.logit_equilibrium(CHICKEN[None], CHICKEN[None], 1.0)
    with pytest.raises(ValueError, match="temperature must be one number here"):
        games.logit_equilibrium(CHICKEN, CHICKEN, [1.0, 2.0])
    with pytest.raises(ValueError, match="temperature must be a finite number > 0"):
        games.logit_equilibrium(CHICKEN, CHICKEN, math.nan)
    with pytest.raises(ValueError, match="row must be finite: row 0, column 1"):
        games.logit_equilibrium([[0.0, math.inf]], [[0.0, 1.0]], 1.0)
