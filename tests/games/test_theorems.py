"""The theorems about games: never exceeded by search, attained where they say, falsifiable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut import games
from taut._base.matrix_norm import matrix_norm
from taut.games._solvers.interaction import interaction, row_bound, survey
from tests.helpers.game_attack import both, ratio, softmax, steepest
from tests.helpers.game_oracle import hard_games

PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])
P = [1.0, 1.5, 2.0, 3.0, math.inf]


def brute_interaction(A):
    difference = A[:, None, :] - A[None, :, :]
    return float(np.ptp(difference, axis=-1).max())


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 8), st.integers(-6, 6))
def test_interaction_is_exact_and_bounded(seed, n, m, power):
    A = np.random.default_rng(seed).normal(size=(1, n, m)) * 10.0**power
    low, high, total = survey(A)
    np.testing.assert_allclose(total[0], A[0].sum(axis=-1), atol=1e-12 * 10.0**power)
    expected = brute_interaction(A[0])
    found = interaction(A, low, high)[0]
    assert expected * (1 - 1e-15) <= found <= expected * (1 + 1e-14) + 1e-14 * 10.0**power
    assert row_bound(low, high)[0] >= expected


@pytest.mark.theorem("dsfp-tv", "holds")
@pytest.mark.theorem("dsfp-2", "holds")
@pytest.mark.theorem("dsfp-p", "holds")
@pytest.mark.parametrize("seed", range(30))
def test_no_game_breaks_a_certificate(seed):
    """Search over games and pairs of strategies, also p = 1 and ∞, where Nair's proof fails."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 7, size=2)
    A = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-1, 2, size=(n, 1))
    if seed % 3 == 0:
        A = np.sign(A)
    tau = float(np.abs(A).max() * 10 ** rng.uniform(-0.5, 0.5))
    variation = games.certify(A, tau).factor
    assert variation.norm.source == "l1"
    assert steepest(-A, A, tau, 1, rng) <= variation.upper
    for p in P:
        bound = games.certify(A, tau, p=p).factor
        assert variation.upper <= bound.upper * (1 + 1e-12)  # no p-norm is better
        assert steepest(-A, A, tau, p, rng) <= bound.upper


def test_the_uncorrected_factor_fails():
    """Nair 2025 takes ‖Aᵀ‖_p = ‖A‖_p. At p = 1 its factor ‖A‖₁²/4τ² is exceeded."""
    A, tau = np.array([[1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]]) / 2, 1.0
    claimed = matrix_norm(A, 1.0) ** 2 / (4 * tau**2)
    y = np.full(4, 0.25)
    z = y + 1e-5 * np.array([1.0, -1.0, 0.0, 0.0])
    found = ratio(-A, A, tau, y, z, 1)
    assert found <= games.certify(A, tau, p=1).factor.upper
    worse = max(found, steepest(-A, A, tau, 1, np.random.default_rng(0)))
    assert worse <= games.certify(A, tau).factor.upper
    flipped = A.T
    assert matrix_norm(flipped, 1.0) > matrix_norm(A, 1.0)
    assert claimed < games.certify(A, tau, p=1).factor.upper


@pytest.mark.theorem("dsfp-tv", "attained")
@pytest.mark.theorem("dsfp-2", "attained")
@pytest.mark.theorem("dsfp-p", "attained")
@pytest.mark.theorem("dsfp-tv", "falsifiable")
@pytest.mark.theorem("dsfp-2", "falsifiable")
@pytest.mark.theorem("dsfp-p", "falsifiable")
@pytest.mark.parametrize("p", P)
def test_pennies_attain_the_factor(p):
    tau = 1.7
    y, z = np.array([0.5, 0.5]), np.array([0.5 + 1e-5, 0.5 - 1e-5])
    for asked in (None, p):
        bound = games.certify(PENNIES, tau, p=asked).factor.upper
        found = ratio(-PENNIES, PENNIES, tau, y, z, 1 if asked is None else p)
        assert 0.999 * bound < found <= bound


def test_damping_has_the_corrected_factor():
    """(1 − α) + α κ, not κ: near the equilibrium of a game with T′ = −κ it is 1 − α(1 + κ)."""
    tau, alpha = 1.7, 0.3
    y, z = np.array([0.5, 0.5]), np.array([0.5 + 1e-5, 0.5 - 1e-5])
    kappa = games.certify(PENNIES, tau).factor.upper
    damped = [(1 - alpha) * s + alpha * both(-PENNIES, PENNIES, tau, s) for s in (y, z)]
    found = np.abs(damped[0] - damped[1]).sum() / np.abs(y - z).sum()
    assert found > kappa  # Nair's claim
    assert found <= (1 - alpha) + alpha * kappa


@pytest.mark.theorem("dsfp-gap", "holds")
@pytest.mark.theorem("predictive", "holds")
@pytest.mark.parametrize("name", hard_games())
def test_runs_keep_what_was_predicted(name):
    """Every gap on the way lies below its bound, and the run ends in the iterations predicted."""
    A = hard_games()[name]
    # Where D is but rounding, any τ is far above it.
    threshold = max(games.certify(A, 1.0).smallest_temperature, 1e-3 * (np.ptp(A) or 1.0))
    for factor, method, damping in (
        (1.01, "dsfp", 1.0),
        (1.5, "dsfp", 1.0),
        (4.0, "dsfp", 1.0),
        (1.5, "dsfp", 0.4),
        (4.0, "predictive", 1.0),
        (1.0, "predictive", 1.0),
        (0.2, "predictive", 1.0),
        (0.02, "predictive", 1.0),
    ):
        tau = factor * threshold
        gaps: list[float] = []
        solution = games.solve(
            A, tau, method=method, damping=damping, callback=lambda _, g, gaps=gaps: gaps.append(g)
        )
        assert solution.converged
        certificate = solution.certificate
        first, rate = certificate.gap_bound(method=method, damping=damping)
        rounding = 2e-28 * (np.abs(A).max() / tau + 1) ** 2 * tau * A.size**2
        for k, found in enumerate(gaps):
            assert found <= first * rate**k + rounding
        wanted = certificate.iterations(solution.target, method=method, damping=damping)
        assert solution.iterations <= wanted < math.inf


@pytest.mark.theorem("dsfp-gap", "attained")
@pytest.mark.theorem("dsfp-gap", "falsifiable")
def test_pennies_attain_the_rate_of_the_gap():
    """The measured rate a round is the certified one; a rate 1 % faster is wrong in the end."""
    tau = 1.05
    gaps: list[float] = []
    solution = games.solve(
        PENNIES,
        tau,
        method="dsfp",
        start=[0.5 + 1e-4, 0.5 - 1e-4],
        tolerance=1e-24,
        callback=lambda _, g: gaps.append(g),
    )
    _, rate = solution.certificate.gap_bound()
    measured = (gaps[9] / gaps[1]) ** (1 / 8)
    assert 0.999 * rate < measured <= rate
    assert gaps[-1] > gaps[0] * (0.99 * rate) ** (len(gaps) - 1)


@pytest.mark.theorem("predictive", "attained")
@pytest.mark.theorem("predictive", "falsifiable")
def test_the_predictive_rate_tends_to_that_of_plain_iteration():
    """1 − s = r² + O(r⁴): on pennies the divergence really falls by r⁴ ≤ 1 − s a step, as r → 0."""
    for r in (0.3, 0.1, 0.03):
        certificate = games.certify(PENNIES, 1 / r)
        factor = 1 - certificate.predictive_rate
        assert factor == pytest.approx(r * r, rel=2.1 * r * r)
        assert factor < certificate.factor.upper
    # A smaller step than proved would be slower, a rate of 0.99 (1 − s) is not proved: with the
    # step s′ of that rate, s′²r² > 1 − s′, and the proof's inequality fails.
    from taut.games._solvers.first_order import mixing

    for r in (0.1, 1.0, 10.0):
        s = mixing(r)
        assert s * s * r * r == pytest.approx(1 - s)
        faster = 1 - 0.99 * (1 - s)
        assert faster**2 * r * r > 1 - faster


def test_the_predictive_update_contracts_the_divergence():
    """KL(ζ* ‖ ζ) falls by 1 − s in every single step, for all temperatures."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        A = rng.normal(size=rng.integers(2, 6, size=2))
        tau = 10 ** rng.uniform(-1.5, 0.5)
        star = games.solve(A, tau, tolerance=1e-20)
        s = games.certify(A, tau).predictive_rate
        rate = 1 - s
        u, v = (np.log(rng.dirichlet(np.ones(k))) for k in A.shape)

        def distance(u, v, star=star):
            p, q = (z - np.logaddexp.reduce(z) for z in (u, v))
            return star.x @ (np.log(star.x) - p) + star.y @ (np.log(star.y) - q)

        for _ in range(15):
            middle_x = (1 - s) * u - s * A @ softmax(v) / tau
            middle_y = (1 - s) * v + s * A.T @ softmax(u) / tau
            next_u = (1 - s) * u - s * A @ softmax(middle_y) / tau
            next_v = (1 - s) * v + s * A.T @ softmax(middle_x) / tau
            assert distance(next_u, next_v) <= rate * distance(u, v) + 1e-9
            u, v = next_u, next_v


@pytest.mark.parametrize("p", P)
def test_matrix_norms_are_upper_bounds(p):
    rng = np.random.default_rng(0)
    for _ in range(30):
        A = rng.normal(size=rng.integers(1, 7, size=2)) * 10.0 ** rng.integers(-3, 4)
        bound = matrix_norm(A, p)
        v = rng.normal(size=A.shape[1])
        for _ in range(50):  # Boyd's power iteration gives a lower bound
            if p in (1, math.inf):
                v = (
                    np.sign(rng.normal(size=A.shape[1]))
                    if p > 1
                    else np.eye(A.shape[1])[rng.integers(A.shape[1])]
                )
            assert np.linalg.norm(A @ v, p) <= bound * np.linalg.norm(v, p) * (1 + 1e-14)
            if 1 < p < math.inf:
                w = A @ v
                g = A.T @ (np.sign(w) * np.abs(w) ** (p - 1))
                v = np.sign(g) * np.abs(g) ** (1 / (p - 1))
                v /= np.linalg.norm(v, p) or 1.0
        if p in (1, 2, math.inf):
            assert bound == pytest.approx(np.linalg.norm(A, p))


def test_certificates_of_large_games_are_bounds_of_exact_ones(monkeypatch):
    from taut.games import certificate as _certificate
    from taut.games._solvers import prepare as _prepare

    A = np.random.default_rng(0).normal(size=(30, 40))
    exact = games.certify(A, 3.0)
    monkeypatch.setattr(_certificate, "AFFORDABLE", 0.0)
    monkeypatch.setattr(_prepare, "CHEAP", 0.0)
    loose = games.certify(A, 3.0)
    assert exact.interaction_is_exact
    assert not loose.interaction_is_exact
    assert loose.factor.upper >= exact.factor.upper
    assert loose.smallest_temperature >= exact.smallest_temperature
    # A game of low rank with one large column has a large D bound and a small 2-norm or vice versa.
    sparse = np.zeros((30, 40))
    sparse[0, 0] = sparse[1, 1] = sparse[2, 0] = 1.0
    chosen = games.certify(sparse, 3.0)
    assert chosen.factor.theorem[0] in ("dsfp-tv", "dsfp-2")
    assert games.solve(A, 3.0).converged


def test_what_a_certificate_says():
    certificate = games.certify(PENNIES, 1.5)
    assert "contracts by 0.4444" in str(certificate)
    assert "temperatures above 1" in str(certificate)
    low = games.certify(PENNIES, 0.5)
    assert not low.contracts
    assert low.iterations(1e-9) == math.inf
    assert low.iterations(1e-9, method="predictive") < 200
    assert "not certified" in str(low)
    batch = games.certify(np.stack([PENNIES, 5 * PENNIES]), 1.5)
    assert batch.contracts.tolist() == [True, False]
    assert batch.iterations([1e-9, 1e-9])[1] == math.inf
    assert "1 of" in str(batch)
