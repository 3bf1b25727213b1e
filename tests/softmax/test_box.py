"""Neighbourhoods: probabilities and constants stay inside what is said of a box."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut

INF = math.inf


@pytest.mark.theorem("radius", "holds")
@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=6),
    st.floats(0, 3),
    st.floats(0.1, 3),
    st.integers(0, 2**32 - 1),
)
def test_probabilities_stay_in_their_intervals(x, radius, scale, seed):
    rng = np.random.default_rng(seed)
    low, high = taut.probability_intervals(x, radius, scale=scale)
    steps = rng.uniform(-radius, radius, (50, len(x)))
    steps[:25] = np.sign(steps[:25]) * radius
    moved = taut.softmax(np.array(x) + steps, scale=scale)
    assert np.all(moved >= low * (1 - 1e-13))
    assert np.all(moved <= high * (1 + 1e-13))
    for p in (1, 2, 3, INF):
        box = taut.local_lipschitz(x, p, radius=radius, scale=scale)
        inside = taut.local_lipschitz(np.array(x) + steps, p, scale=scale)
        assert np.all(inside.lower <= box.upper * (1 + 1e-13))
        assert box.lower <= box.upper


@pytest.mark.theorem("radius", "attained")
@pytest.mark.theorem("radius", "falsifiable")
def test_intervals_and_box_constant_are_attained():
    x, r, scale = np.array([2.0, 0.5, -1.0]), 0.3, 1.7
    low, high = taut.probability_intervals(x, r, scale=scale)
    for i in range(3):
        step = np.full(3, -r)
        step[i] = r
        assert taut.softmax(x + step, scale=scale)[i] == pytest.approx(high[i], rel=1e-13)
        assert taut.softmax(x - step, scale=scale)[i] == pytest.approx(low[i], rel=1e-13)
    box = taut.local_lipschitz(x, 1, radius=r, scale=scale)
    corner = taut.local_lipschitz(x + [-r, r, r], 1, scale=scale)
    assert float(corner) == pytest.approx(float(box), rel=1e-13)


def test_box_of_radius_zero_is_the_point():
    x = np.random.default_rng(0).standard_normal((20, 5)) * 4
    for p in (1, INF):
        np.testing.assert_allclose(
            taut.local_lipschitz(x, p, radius=0).value, taut.local_lipschitz(x, p).value, rtol=1e-12
        )


def test_box_reaches_one_half_when_the_top_can():
    assert taut.local_lipschitz([1.0, 0.0], 1, radius=0.5).value == 0.5
    assert taut.local_lipschitz([1.0, 0.0], 1, radius=0.4).value < 0.5
