"""Norms from one l_p to another: never exceeded, attained, and falsifiable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut._base.array import lp_norm
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
        assert np.all(reached <= bound.upper)
        assert np.all(bound.upper <= 1)
        assert np.all(bound.lower / bound.upper > 0.999)
    # Three equal large entries and dust: the dust cannot fill the gap.
    x = np.log([0.3, 0.3, 0.3] + [0.1 / 40] * 40)
    bound = taut.local_lipschitz(x, INF, 1)
    assert bound.upper == pytest.approx(4 * 0.4 * 0.6, rel=1e-9)
    assert bound.lower == pytest.approx(4 * 0.4 * 0.6, rel=1e-9)


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
