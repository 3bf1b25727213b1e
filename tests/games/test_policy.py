"""Softmax policies: the constant λ/2, constants at a Q-table, and the largest safe λ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut import games


def norm(q, scale, p):
    return scale * float(taut.local_lipschitz(q * scale, p).upper) if scale else 0.0


def test_the_constant_of_a_policy():
    q = np.array([[1.0, 1.0, 1.0], [0.0, 3.0, -math.inf]])
    policy = games.policy_sensitivity(q, scale=4.0, p=math.inf)
    assert policy.everywhere.value == 2.0
    np.testing.assert_allclose(policy.here.value[0], 4 * 2 * (1 / 3) * (2 / 3))
    assert (policy.here.upper <= policy.everywhere.upper).all()
    assert games.policy_sensitivity([[1.0]], scale=4.0).everywhere.upper <= 1e-300


@pytest.mark.theorem("policy-scale", "holds")
@given(st.integers(0, 10_000), st.sampled_from([1.0, 2.0, math.inf]))
def test_growth_is_bounded(seed, p):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=rng.integers(2, 7)) * 10 ** rng.uniform(-1, 1)
    low = 10 ** rng.uniform(-2, 1)
    high = low * (1 + 10 ** rng.uniform(-4, 0.5))
    lead = q.max() - taut.softmax(q, scale=low) @ q
    before, after = (float(taut.local_lipschitz(q * s, p).upper) for s in (low, high))
    assert math.log(after / before) <= lead * (high - low) + 1e-10


@pytest.mark.theorem("policy-scale", "attained")
@pytest.mark.theorem("policy-scale", "falsifiable")
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_growth_is_attained_by_many_low_actions(p):
    q = np.zeros(100_000)
    q[:2] = 1.0
    low, high = 1.0, 1.001
    before, after = (float(taut.local_lipschitz(q * s, p).value) for s in (low, high))
    lead = 1 - taut.softmax(q, scale=low) @ q
    assert 0.99 * lead * (high - low) < math.log(after / before) <= lead * (high - low) + 1e-12


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("seed", range(15))
def test_no_scale_below_the_answer_is_too_sensitive(seed, p):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(3, rng.integers(2, 6))) * 10 ** rng.uniform(-1, 1)
    if seed % 3 == 0:
        table[:, 0] = table[:, 1] = table.max(axis=1)
    wanted = float(10 ** rng.uniform(-1, 1))
    answer = games.largest_scale(wanted, table, p=p)
    assert answer >= 2 * wanted * (1 - 1e-12)
    top = min(answer, 200 * wanted)
    lower = "lower" if p == 3 else "value"
    scales = np.linspace(top / 400, top, 400)[:, None, None]
    here = scales[..., 0] * getattr(taut.local_lipschitz(scales * table, p), lower)
    assert np.max(here) <= wanted * (1 + 1e-9)
    if answer < math.inf and p != 3:  # and a little beyond it is
        beyond = taut.local_lipschitz(table, p, scale=answer * (1 + 1e-7))
        assert np.max(beyond.value) >= wanted * (1 - 1e-6)


def test_without_a_table_the_answer_holds_for_all():
    assert games.largest_scale(0.5) == 1.0
    assert games.largest_scale(0.5, [[1.0, 1.0]]) == pytest.approx(1.0)
    assert games.largest_scale(0.5, [[3.0]]) == math.inf
    assert games.largest_scale(0.5, [[3.0, -math.inf]]) == math.inf


def test_wrong_input():
    with pytest.raises(ValueError, match="sensitivity must be a finite number > 0"):
        games.largest_scale(0.0)
    with pytest.raises(ValueError, match="scale must be > 0"):
        games.policy_sensitivity([[1.0, 2.0]], scale=-1.0)
    with pytest.raises(ValueError, match="must be finite"):
        games.largest_scale(1.0, [[1.0, math.nan]])
    with pytest.raises(ValueError, match="must be finite"):
        games.largest_scale(1.0, [[1.0, math.inf]])


def test_values_and_sensitivities_at_the_end_of_the_range():
    for wanted, values in (
        (1e-300, [[1e308, -1e308, 0.0]]),
        (0.8e308, [[1.0, 1.0, 1.0]]),
        (1e308, [[1.0, 2.0]]),
        (1e-3, [[1.0, 1.0 - 1e-300, 1.0]]),
    ):
        scale = games.largest_scale(wanted, values)
        assert scale >= min(2 * wanted, 1.7e308) * (1 - 1e-12)
        if scale < math.inf:
            assert np.all(games.policy_sensitivity(values, scale=scale).here.lower <= wanted)
