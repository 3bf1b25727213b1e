"""The any-p bracket: theorems dual and local-p-bracket, against brute force and 60 digits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut._base.reductions import lp_norm
from taut._softmax.jacobian import covariance_product

EXPONENTS = (1.001, 1.1, 1.5, 1.9, 2.1, 3.0, 4.0, 8.0, 30.0, 300.0)


def quotient(s, v, p):
    """‖M(s)v‖_p/‖v‖_p in 60 digits."""
    from flint import arb, ctx

    ctx.dps = 60
    s, v = ([arb(float(entry)) for entry in vector] for vector in (s, v))
    mean = sum((a * b for a, b in zip(s, v, strict=True)), arb(0))

    def norm(w):
        sizes = [abs(entry) for entry in w]
        return sum((size ** arb(p) for size in sizes if size != 0), arb(0)) ** (1 / arb(p))

    image = [a * (b - mean) for a, b in zip(s, v, strict=True)]
    return float(norm(image) / norm(v))


def climb(s, p, rng, starts=30, steps=200):
    """Best quotient of the nonlinear power method from many random starts (brute force)."""
    q = max(p, p / (p - 1))
    s = np.broadcast_to(s, (starts, len(s)))
    v = rng.standard_normal(s.shape) * rng.random(s.shape) ** 3
    best = 0.0
    for _ in range(steps):
        u = covariance_product(s, v)
        best = max(best, float(np.max(lp_norm(u, q)[:, 0] / lp_norm(v, q)[:, 0])))
        u /= np.max(np.abs(u), axis=-1, keepdims=True) + 1e-300
        u = np.sign(u) * np.abs(u) ** (q - 1)
        v = covariance_product(s, u)
        v /= np.max(np.abs(v), axis=-1, keepdims=True) + 1e-300
        v = np.sign(v) * np.abs(v) ** (1 / (q - 1))
    return best


def random_rows(rng, count):
    for _ in range(count):
        n = int(rng.integers(2, 9))
        x = rng.standard_normal(n) * 10 ** rng.uniform(-2, 1)
        if rng.random() < 0.3:
            x = np.round(x)
        yield x


@pytest.mark.theorem("local-p-bracket", "holds")
@pytest.mark.parametrize("rows", [15, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("p", EXPONENTS)
def test_brute_force_never_leaves_the_bracket(p, rows):
    rng = np.random.default_rng(int(p * 1000))
    for x in random_rows(rng, rows):
        bound = taut.local_lipschitz(x, p)
        best = climb(taut.softmax(x), p, rng)
        assert best <= bound.upper * (1 + 1e-12)
        assert bound.lower >= best * (1 - 1e-3), "a better direction exists than the one found"
        assert bound.lower <= bound.upper


@pytest.mark.theorem("local-p-bracket", "attained")
@pytest.mark.parametrize("p", EXPONENTS)
def test_bracket_closes_for_two_entries(p):
    bound = taut.local_lipschitz([0.7, 0.0], p)
    s = taut.softmax([0.7, 0.0])
    assert bound.lower == pytest.approx(2 * s[0] * s[1], rel=1e-12)
    assert bound.upper == pytest.approx(2 * s[0] * s[1], rel=1e-12)


@pytest.mark.theorem("local-p-bracket", "falsifiable")
def test_a_bracket_of_half_the_size_would_be_seen():
    rng = np.random.default_rng(0)
    x = np.array([1.0, 0.9, 0.1, -2.0])
    assert climb(taut.softmax(x), 3.0, rng) > 0.99 * taut.local_lipschitz(x, 3.0).lower


@pytest.mark.parametrize("p", EXPONENTS)
def test_lower_side_is_what_its_direction_reaches(p):
    rng = np.random.default_rng(1)
    for x in random_rows(rng, 20):
        v = taut.worst_direction(x, p)
        s = taut.softmax(x)
        reached = quotient(s, v, p)
        bound = taut.local_lipschitz(x, p)
        assert lp_norm(v, p)[0] == pytest.approx(1, rel=1e-12)
        assert reached <= bound.upper * (1 + 1e-12)
        assert reached == pytest.approx(bound.lower, rel=1e-6, abs=1e-300)


def hostile_rows(rng, count):
    """Ties, near ties, masks, one large logit, flat rows and logits far from 0."""
    for k in range(count):
        n = int(rng.choice([2, 3, 7, 40, 130]))
        x = rng.standard_normal(n) * 10 ** rng.uniform(-6, 1.5)
        if k % 7 == 1:
            x = np.round(x)
        elif k % 7 == 2:
            x[rng.integers(n)] += 10 ** rng.uniform(0, 2.8)
        elif k % 7 == 3:
            x[1:][rng.random(n - 1) < 0.3] = -math.inf
        elif k % 7 == 4:
            x = np.where(np.arange(n) < 2, 0, x - 10 ** rng.uniform(-3, 2.7))
            x[0] += 10.0 ** rng.uniform(-16, -1)
        elif k % 7 == 5:
            x = 1e-12 * x
        elif k % 7 == 6:
            x = x + 1e15
        yield x


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lower_side_is_never_above_the_exact_quotient(dtype):
    """The proof of its rounding: the quotient of the same direction, in 700 digits."""
    from flint import arb, ctx

    from taut._softmax.any_p import _compiled
    from taut._softmax.exact import exact_constants

    rng = np.random.default_rng(7)
    ctx.dps = 700
    for x in hostile_rows(rng, 140):
        x = x.astype(dtype)
        q, scale = (
            float(rng.choice([2.0001, 2.1, 3.0, 30.0, 5000.0])),
            float(rng.choice([1, 0.3, 7])),
        )
        found = _compiled(x, q, scale, exact_constants(x, scale))
        if float(found.value) == 0:
            continue
        shown = x > -math.inf
        z, v = [arb(float(t)) for t in x[shown]], [arb(float(t)) for t in found.direction[shown]]
        weights = [((t - arb(float(x.max()))) * arb(scale)).exp() for t in z]
        total = sum(weights, arb(0))
        mean = sum((a * b for a, b in zip(weights, v, strict=True)), arb(0)) / total
        image = [a / total * abs(b - mean) for a, b in zip(weights, v, strict=True)]
        above, below = (
            sum((abs(t) ** arb(q) for t in w if not t.contains(0)), arb(0)) for w in (image, v)
        )
        assert arb(float(found.value)) <= arb(scale) * (above / below) ** (1 / arb(q))


def test_compiled_and_portable_search_agree(monkeypatch):
    import taut._softmax.any_p as module

    rng = np.random.default_rng(3)
    for n in (3, 20, 100):
        x = rng.standard_normal((20, n)) * np.geomspace(0.02, 20, 20)[:, None]
        x[::4] = np.round(x[::4])
        for p in (1.2, 2.1, 3.0, 50.0):
            compiled = taut.local_lipschitz(x, p)
            with monkeypatch.context() as patch:
                patch.setattr(module, "_compiled", lambda *_, **__: None)
                portable = taut.local_lipschitz(x, p)
            assert (compiled.rounding, portable.rounding) == ("proved", "estimated")
            np.testing.assert_array_equal(compiled.upper, portable.upper)
            np.testing.assert_allclose(compiled.lower, portable.lower, rtol=2e-3)


@pytest.mark.theorem("dual", "holds")
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.floats(1.01, 1.99))
def test_dual_exponents_share_their_norm(x, p):
    one, other = taut.local_lipschitz(x, p), taut.local_lipschitz(x, p / (p - 1))
    assert one.upper == pytest.approx(other.upper, rel=1e-9)
    assert one.lower == pytest.approx(other.lower, rel=1e-9)


@pytest.mark.theorem("dual", "falsifiable")
def test_other_exponents_do_not():
    assert taut.local_lipschitz([1.0, 0.5, 0.0], 3).lower > 1.01 * (
        taut.local_lipschitz([1.0, 0.5, 0.0], 2).upper
    )


def test_flat_rows_need_a_split():
    """For uniform rows the maximiser is two-valued: the norm of f − ∫f on L_p (Rolewicz)."""
    n, p = 512, 4.0
    k = np.arange(1, n)
    a = k / n
    exact = np.max(
        (a ** (p - 1) + (1 - a) ** (p - 1)) ** (1 / p)
        * (a ** (1 / (p - 1)) + (1 - a) ** (1 / (p - 1))) ** (1 - 1 / p)
    )
    bound = taut.local_lipschitz(np.zeros(n), p)
    assert bound.lower * n > 0.99 * exact
    assert bound.upper * n >= exact


def test_extreme_exponents_tend_to_the_exact_norms():
    x = np.random.default_rng(0).standard_normal((10, 6))
    for p, limit in ((1 + 1e-9, 1), (2 + 1e-9, 2), (2 - 1e-9, 2), (1e9, math.inf)):
        bound = taut.local_lipschitz(x, p)
        exact = taut.local_lipschitz(x, limit)
        np.testing.assert_allclose(bound.upper, exact.value, rtol=1e-6)
