"""Empirical constants are lower bounds: never above λ/2, and near the local constant when worst."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut

INF = math.inf


@given(
    st.lists(st.floats(-20, 20), min_size=1, max_size=8),
    st.sampled_from([1.0, 1.5, 2.0, 4.0, INF]),
    st.sampled_from([1e-12, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1000.0]),
    st.floats(-3, 3),
    st.sampled_from(["random", "worst"]),
)
def test_never_above_the_global_constant(x, p, epsilon, scale, along):
    scale = scale if abs(scale) > 1e-3 else 0.0  # so that the change does not underflow
    measured = taut.empirical_lipschitz(x, p, epsilon=epsilon, along=along, scale=scale)
    assert measured.kind == "lower"
    assert measured.lower <= abs(scale) / 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiny_steps_are_not_noise(dtype):
    """Subtracting softmaxes in float32 at epsilon = 1e-6 would be off by ten percent."""
    x = (np.random.default_rng(0).standard_normal((50, 20)) * 2).astype(dtype)
    for p in (1, 2, INF):
        local = taut.local_lipschitz(x, p)
        measured = taut.empirical_lipschitz(x, p, epsilon=1e-9, along="worst")
        # A step of size 1e-9 may exceed the local constant by a second-order term.
        assert np.all(measured.lower <= local.upper * (1 + 1e-8))
        np.testing.assert_allclose(measured.lower, local.value, rtol=5e-6)


def test_equation_7_by_hand():
    x = np.random.default_rng(1).standard_normal((6, 5))
    measured = taut.empirical_lipschitz(x, 3, epsilon=0.5, seed=4)
    step = np.random.default_rng(4).standard_normal((6, 5))
    step *= 0.5 / np.linalg.norm(step, 3, axis=-1, keepdims=True)
    ratio = np.linalg.norm(taut.softmax(x + step) - taut.softmax(x), 3, axis=-1) / 0.5
    np.testing.assert_allclose(measured.lower, ratio, rtol=1e-12)
    assert measured.max().lower == measured.lower.max()


def test_random_directions_fall_short_of_the_worst():
    x = np.random.default_rng(2).standard_normal((50, 200)) * 3
    random = taut.empirical_lipschitz(x, samples=10)
    worst = taut.empirical_lipschitz(x, along="worst")
    assert np.all(random.lower < 0.7 * worst.lower)


def test_more_samples_only_help():
    x = np.random.default_rng(3).standard_normal((20, 6))
    one = taut.empirical_lipschitz(x, samples=1, seed=0).lower
    many = taut.empirical_lipschitz(x, samples=20, seed=0).lower
    assert np.all(many >= one)


def test_same_draws_on_every_backend(backend):
    x = np.random.default_rng(4).standard_normal((5, 7))
    got = backend.numpy(taut.empirical_lipschitz(backend.array(x)).lower)
    np.testing.assert_allclose(got, taut.empirical_lipschitz(x).lower, rtol=1e-3)


def test_masked_entries_are_not_perturbed():
    x = np.array([0.0, 1.0, -INF, -INF])
    masked = taut.empirical_lipschitz(x, along="worst", epsilon=1e-6).lower
    plain = taut.empirical_lipschitz(x[:2], along="worst", epsilon=1e-6).lower
    assert masked == pytest.approx(plain, rel=1e-12)
    assert taut.empirical_lipschitz([-INF, -INF]).lower == 0
