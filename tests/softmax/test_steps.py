"""Bounds of whole steps, of entropy and of bounded logits: never exceeded, attained."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from tests.helpers.softmax_steps import change, rows

INF = math.inf


@pytest.mark.theorem("tv-step", "holds")
@given(rows, st.sampled_from([1.0, 2.0, 3.0, INF]), st.floats(-3, 3))
def test_step_bound_holds_for_any_step(row, p, scale):
    x, d, size = (np.array(v) for v in row)
    x, d = x * size, d * size
    assert (
        np.linalg.norm(change(x, d, scale), p) <= taut.step_bound(d, p, scale=scale).upper + 1e-18
    )


@pytest.mark.theorem("tv-step", "attained")
@pytest.mark.theorem("tv-step", "falsifiable")
@pytest.mark.parametrize("size", [1e-3, 1.0, 10.0])
def test_step_bound_is_attained_for_two_classes(size):
    d = np.array([size, -size])
    for p in (1, 2, INF):
        reached = np.linalg.norm(change(-d / 2, d), p)
        assert reached > 0.9999999 * taut.step_bound(d, p).upper


# entropy-floor ------------------------------------------------------------------------------


def entropy(s):
    return -np.sum(s * np.log(s), axis=-1)


@pytest.mark.theorem("entropy-floor", "holds")
def test_entropy_floor_holds():
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 20):
        for norm in (0.1, 1.0, 3.0, 10.0):
            x = rng.standard_normal((2000, n)) ** 3
            x *= norm / np.linalg.norm(x, axis=-1, keepdims=True)
            floor = taut.entropy_floor(n, logit_norm=norm)
            assert np.all(entropy(taut.softmax(x)) >= floor.lower)
            assert np.all(entropy(taut.softmax(x)) <= floor.upper)


@pytest.mark.theorem("entropy-floor", "attained")
@pytest.mark.theorem("entropy-floor", "falsifiable")
def test_entropy_floor_is_attained():
    n, norm = 6, 2.5
    x = np.full(n, -norm / math.sqrt(n * (n - 1)))
    x[0] = norm * math.sqrt((n - 1) / n)
    assert np.linalg.norm(x) == pytest.approx(norm)
    assert entropy(taut.softmax(x)) == pytest.approx(
        taut.entropy_floor(n, logit_norm=norm).lower, rel=1e-12
    )


@pytest.mark.theorem("bounded-logits", "holds")
def test_bounded_logits_hold():
    rng = np.random.default_rng(0)
    for n in (2, 3, 10, 60):
        for spread in (0.0, 0.5, 2.0, 6.0):
            x = rng.uniform(0, spread, (300, n)) if spread else np.zeros((1, n))
            x[: len(x) // 2] = np.round(x[: len(x) // 2] / (spread or 1)) * spread
            for p in (1, 1.5, 2, INF):
                bound = taut.bounded_logits_lipschitz(n, spread=spread, p=p, scale=1.5)
                local = taut.local_lipschitz(x, p, scale=1.5)
                assert np.all(local.lower <= bound.upper)


@pytest.mark.theorem("bounded-logits", "attained")
@pytest.mark.theorem("bounded-logits", "falsifiable")
def test_bounded_logits_are_attained():
    x = np.zeros(50)
    x[0] = 1.2
    bound = taut.bounded_logits_lipschitz(50, spread=1.2, p=1)
    assert float(taut.local_lipschitz(x, 1)) == pytest.approx(bound.value, rel=1e-13)
    assert bound.upper < 0.5
    assert taut.bounded_logits_lipschitz(50, spread=30.0, p=1).value == 0.5
