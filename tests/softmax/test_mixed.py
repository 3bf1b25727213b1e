"""Norms from one l_p to another: never exceeded, attained, and falsifiable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut._base.reductions import lp_norm
from taut._softmax.partition import nearest_half, theta_sides
from tests.helpers.softmax_steps import change, dense

INF = math.inf


def brute_inf_to_one(J):
    n = len(J)
    signs = np.array(np.meshgrid(*[[1, -1]] * n)).reshape(n, -1)
    return np.abs(J @ signs).sum(axis=0).max()


@pytest.mark.theorem("inf-to-1", "holds")
@given(st.lists(st.floats(-4, 4), min_size=2, max_size=9), st.floats(0.1, 3))
def test_inf_to_one_is_the_norm(x, scale):
    bound = taut.local_lipschitz(x, INF, 1, scale=scale)
    exact = brute_inf_to_one(dense(x, scale))
    assert bound.kind == "exact"
    assert bound.lower <= exact * (1 + 1e-13)
    assert exact <= bound.upper * (1 + 1e-13)
    assert bound.upper <= taut.global_lipschitz(INF, 1, scale=scale).upper
    signs = taut.worst_direction(x, INF, 1, scale=scale)
    assert np.abs(dense(x, scale) @ signs).sum() == pytest.approx(exact, rel=1e-12)


@pytest.mark.theorem("inf-to-1", "attained")
@pytest.mark.theorem("inf-to-1", "falsifiable")
def test_inf_to_one_reaches_one():
    """The constant is 1, not 1/2: half of it is exceeded."""
    assert taut.local_lipschitz(taut.worst_input(7, INF, 1), INF, 1).lower > 1 - 1e-12
    moved = change([0.0, 0.0], [1e-3, -1e-3])
    assert np.abs(moved).sum() / 1e-3 > 0.99


def test_inf_to_one_beyond_exact_enumeration():
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 3.0, 10.0):
        x = rng.standard_normal((40, 60)) * scale
        bound = taut.local_lipschitz(x, INF, 1)
        signs = taut.worst_direction(x, INF, 1)
        reached = np.abs(taut.jvp(x, signs)).sum(axis=-1)
        assert np.all(bound.lower <= reached * (1 + 1e-10))
        assert np.all(reached <= bound.upper * (1 + 1e-12))
        assert np.all(bound.upper <= 1)
        assert np.all(bound.lower / bound.upper > 0.999)
    # Three equal large entries and dust: the dust cannot fill the gap.
    x = np.log([0.3, 0.3, 0.3] + [0.1 / 40] * 40)
    bound = taut.local_lipschitz(x, INF, 1)
    assert bound.upper == pytest.approx(4 * 0.4 * 0.6, rel=1e-9)
    assert bound.lower == pytest.approx(4 * 0.4 * 0.6, rel=1e-9)


def least_difference(s):
    """The least |Σ εᵢsᵢ| over all signs, by trying them."""
    signs = np.array(np.meshgrid(*[[1, -1]] * len(s))).reshape(len(s), -1)
    return np.abs(s @ signs).min()


def test_subsets_are_the_best():
    """Exhaustive up to 24 entries, and through the arrangement of large ones with small ones."""
    rng = np.random.default_rng(0)
    for n in range(1, 15):
        s = taut.softmax(rng.standard_normal((20, n)) * rng.uniform(0.1, 4, (20, 1)))
        s[:5] = rng.permuted(np.array([[1.0 / n] * n] * 5), axis=1)
        truth = np.array([least_difference(row) for row in s])
        found = nearest_half(s)
        reached = np.abs((s * np.where(found.subset, 1, -1)).sum(axis=1))
        np.testing.assert_allclose(reached, truth, atol=1e-14)
        np.testing.assert_allclose(2 * found.distance, truth, atol=1e-14)
        np.testing.assert_array_equal(found.distance, found.least_distance)
        low, high = theta_sides(s)
        assert np.all(low <= 1 - truth**2 + 1e-15)  # what this difference may be off by
        assert np.all(1 - truth**2 - 1e-15 <= high)


@pytest.mark.parametrize("n", [25, 26, 63, 64, 500, 3001])
def test_long_rows_are_narrow(n):
    rng = np.random.default_rng(n)
    spread = rng.choice([0.0, 0.01, 0.1, 0.5, 1, 2, 4, 8, 20], (60, 1))
    x = rng.standard_normal((60, n)) * spread
    x[:20] = rng.standard_cauchy((20, n))
    s = taut.softmax(x)
    found = nearest_half(s)
    signs = np.where(found.subset, 1, -1)
    np.testing.assert_allclose(np.abs((s * signs).sum(axis=1)), 2 * found.distance, atol=1e-14)
    assert np.all(4 * (found.distance**2 - found.least_distance**2) < 1e-6)
    low, high = theta_sides(s)
    assert np.all(high - low < 1e-6)
    # No subset that is known does better than the upper side.
    assert np.all(1 - 4 * found.distance**2 <= high + 1e-12)  # which cancels
    bound = taut.local_lipschitz(x, INF, 1)
    assert np.all(bound.upper - bound.lower < 1e-6 + 1e-12)
    reached = np.abs(taut.jvp(x, taut.worst_direction(x, INF, 1))).sum(axis=-1)
    assert np.all(reached <= bound.upper * (1 + 1e-12))
    assert np.all(bound.lower <= reached * (1 + 1e-12))


@pytest.mark.parametrize("large", [[0.3, 0.3, 0.3], [0.4, 0.28, 0.28], [0.19] * 5, [0.5, 0.3]])
@pytest.mark.parametrize("small", [0.0, 2e-4, 8e-4, 1.1e-3])
def test_dust_fills_as_much_as_there_is(large, small):
    """With small entries of one size, the best is known: large signs first, then whole steps."""
    count = 40
    s = np.array([*large, *[small] * count])
    s /= s.sum()
    signs = np.array(np.meshgrid(*[[1, -1]] * len(large))).reshape(len(large), -1)
    steps = s[-1] * np.arange(-count, count + 1, 2)
    truth = np.abs((s[: len(large)] @ signs)[:, None] + steps).min()
    low, high = (float(side[0]) for side in theta_sides(s[None]))
    assert low - 1e-15 <= 1 - truth**2 <= high + 1e-15
    assert high - low < 1e-6
    found = nearest_half(s[None])
    assert 2 * found.least_distance[0] <= truth + 1e-15
    assert 2 * found.distance[0] >= truth - 1e-15


@pytest.mark.parametrize("n", [25, 99, 301])
def test_an_odd_number_of_equal_entries(n):
    low, high = theta_sides(np.full((1, n), 1 / n))
    assert low[0] <= 1 - 1 / n**2 <= high[0]
    assert high[0] - low[0] < 1e-12


@pytest.mark.theorem("1-to-inf", "holds")
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=8))
def test_one_to_inf_is_the_largest_entry(x):
    value = taut.local_lipschitz(x, 1, INF)
    assert value.lower <= np.abs(dense(x)).max() * (1 + 1e-14)
    assert np.abs(dense(x)).max() <= value.upper * (1 + 1e-14)


@pytest.mark.theorem("1-to-inf", "attained")
@pytest.mark.theorem("1-to-inf", "falsifiable")
def test_one_to_inf_reaches_a_quarter():
    x = taut.worst_input(6, 1, INF)
    assert taut.local_lipschitz(x, 1, INF).lower > 0.99 * taut.global_lipschitz(1, INF).upper


@pytest.mark.theorem("1-to-q", "holds")
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=8), st.floats(1, 60) | st.just(1000.0))
def test_one_to_q_is_the_largest_column(x, q):
    columns = np.linalg.norm(dense(x) / np.abs(dense(x)).max(), q, axis=0) * np.abs(dense(x)).max()
    for pair in ((1, q), (q / (q - 1) if q > 1 else INF, INF)):
        bound = taut.local_lipschitz(x, *pair)
        assert bound.lower <= columns.max() * (1 + 1e-12)
        assert columns.max() <= bound.upper * (1 + 1e-12)
        assert bound.upper <= taut.global_lipschitz(*pair).upper * (1 + 1e-15)
        v = taut.worst_direction(x, *pair)
        assert np.linalg.norm(v, pair[0]) == pytest.approx(1)
        reached = lp_norm(taut.jvp(x, v), pair[1])[0]
        assert reached == pytest.approx(columns.max(), rel=1e-6)


@pytest.mark.theorem("1-to-q", "attained")
@pytest.mark.theorem("1-to-q", "falsifiable")
def test_one_to_q_is_tight():
    for q in (1.5, 2, 5):
        reached = taut.local_lipschitz(taut.worst_input(9, 1, q), 1, q)
        assert reached.lower > 0.9999 * taut.global_lipschitz(1, q).upper
