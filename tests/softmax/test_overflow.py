"""Products of logits and scale that leave the range: sides stay on their sides, nothing is NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb

import taut
from tests.helpers import softmax_oracle as oracle

INF = math.inf
ROW = [[1e300, 1e300, -2.3e295]]


def test_overflowing_products_of_ties():
    for p in (1, 1.5, 2, 3, INF):
        for scale in (1e26, 2e30, 1e300):
            for radius in (None, 1e-30):
                bound = taut.local_lipschitz(ROW, p, scale=scale, radius=radius)
                assert 0 <= bound.lower[0] <= scale / 2 <= bound.upper[0]
    for p, q in ((1, 2), (3, INF), (1, INF), (INF, 1)):
        bound = taut.local_lipschitz(ROW, p, q, scale=2e30)
        assert bound.upper[0] >= taut.global_lipschitz(p, q, scale=2e30).lower * (1 - 1e-12)
    low, high = taut.probability_intervals(ROW, 1e-30, scale=2e30)
    odds = math.exp(2 * 2e30 * 1e-30)
    np.testing.assert_allclose(low, [[1 / (1 + odds)] * 2 + [0]], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(high, [[odds / (1 + odds)] * 2 + [0]], rtol=1e-9, atol=1e-300)


def test_overflowing_products_while_traced(torch, jax):
    x = torch.tensor(ROW, dtype=torch.float64)
    small = jax.numpy.asarray([[1e30, 1e30, -2.3e25]])
    for p in (1, 2, 3):
        for kind in ({}, {"radius": 1e-30}):
            found = torch.func.vmap(
                lambda v, p=p, kind=kind: taut.local_lipschitz(v, p, scale=2e30, **kind).upper
            )(x)
            assert 1e30 <= float(found[0]) < 1.01e30
            found = jax.jit(
                lambda v, p=p, kind=kind: taut.local_lipschitz(v, p, scale=1e28, **kind).upper
            )(small)
            assert 5e27 <= float(found[0]) < 5.01e27


def test_derivatives_where_products_overflow(torch, jax):
    for p in (1, 2, 3):
        x = torch.tensor(ROW, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(taut.local_lipschitz(x, p, scale=2e30).upper.sum(), x)
        assert torch.isfinite(grad).all()
    x = torch.tensor(ROW, dtype=torch.float64, requires_grad=True)
    for function in (taut.softmax, taut.log_softmax, taut.logsumexp):
        (grad,) = torch.autograd.grad(function(x, scale=2.0)[..., 0].sum(), x)
        assert torch.isfinite(grad).all()
    grad = jax.grad(lambda v: taut.local_lipschitz(v, 2, scale=1e28).upper)(
        jax.numpy.asarray([1e30, 1e30, -2.3e25])
    )
    assert np.isfinite(np.asarray(grad)).all()


def test_nan_is_not_a_pass_while_traced(jax):
    """Values are not known inside jit: what was NaN must stay NaN."""
    x = jax.numpy.asarray([0.0, math.nan])
    for p in (1, 2, 3):
        for kind in ({}, {"radius": 0.1}):
            found = jax.jit(lambda v, p=p, k=kind: taut.local_lipschitz(v, p, **k).upper)(x)
            assert math.isnan(float(found))


def test_scales_at_the_end_of_the_range():
    for x, scale, exponent in (
        ([0.0, -1e-308], 1.7e308, -1.7),
        ([1e-323, 0.0], 1.7e308, -1e-323 * 1.7e308),
        ([1.7e308, -1.7e308], 5e-324, -2 * (1.7e308 * 5e-324)),
        ([1.7e308, 0.0], 1e-308, -1.7),
    ):
        exact = oracle.exact_constants(np.array(x), scale, bits=2500)
        for bound, truth in zip(taut.local_lipschitz(x, (1, 2), scale=scale), exact, strict=True):
            assert not arb(float(bound.lower)) > truth
            assert not arb(float(bound.upper)) < truth
            assert float(bound) == pytest.approx(float(truth), rel=1e-14)
        top = int(np.argmax(x))
        assert taut.softmax(x, scale=scale)[top] == pytest.approx(1 / (1 + math.exp(exponent)))
        assert taut.softmax(x, scale=-scale)[1 - top] == pytest.approx(1 / (1 + math.exp(exponent)))


def test_scales_beyond_float32(torch):
    for x in (np.array([1e-38, 0.0], np.float32), torch.tensor([1e-38, 0.0])):
        expected = 1 / (1 + math.exp(-10))
        assert float(taut.softmax(x, scale=1e39)[0]) == pytest.approx(expected, rel=1e-6)
        assert float(taut.local_lipschitz(x, 1, scale=1e39).upper) >= 9e34
        assert np.isfinite(np.asarray(taut.jacobian(x, scale=1e39))).all()
        assert np.isfinite(np.asarray(taut.jvp(x, 0 * x + 1, scale=1e39))).all()
        assert math.isinf(float(taut.local_lipschitz(0 * x, 1, scale=1e45).upper))
        masked = x - type(x)([0.0, INF]) if isinstance(x, torch.Tensor) else x - [0, INF]
        assert float(taut.logsumexp(masked, scale=1e-46)) == pytest.approx(1e-38)


def test_jax_refuses_scales_that_xla_would_lose(jax):
    with jax.enable_x64(True):
        x = jax.numpy.asarray([2e-308, 0.0])
        for function in (taut.softmax, taut.log_softmax, taut.logsumexp, taut.local_lipschitz):
            with pytest.raises(ValueError, match="too extreme for JAX"):
                function(x, scale=1e308)
        taut.softmax(x, scale=INF)
    with pytest.raises(ValueError, match="too extreme for float32"):
        taut.softmax(jax.numpy.asarray([0.0, 1.0]), scale=1e39)


def test_boxes_beyond_the_range_know_what_they_reach():
    """2λr and λ(x₁ − x₂) both overflow; which is larger is still clear from the logits."""
    x, scale = [1e300, -1e300], 1e100
    for radius, reached in ((1e210, False), (0.999e300, False), (1.001e300, True), (1e308, True)):
        bound = taut.local_lipschitz(x, 1, radius=radius, scale=scale)
        low, high = taut.probability_intervals(x, radius, scale=scale)
        assert (float(bound) == scale / 2) == reached
        assert (bound.upper == scale / 2) == reached
        assert (bound.lower > 0) == reached
        assert (high[1] == 1) == reached
        assert (low[0] == 0) == reached
        assert taut.local_lipschitz(x, 3, radius=radius, scale=scale).lower <= bound.upper


def test_masked_entries_in_wide_boxes():
    for scale in (1e-300, 1.0, 1e300):
        for radius in (1e-10, 1.0, 1.7e308):
            bound = taut.local_lipschitz([1e308, -1e308, -INF], 3, radius=radius, scale=scale)
            assert 0 <= bound.lower <= bound.upper <= scale / 2 * (1 + 1e-15)
            low, high = taut.probability_intervals([5.0, -INF], radius, scale=scale)
            np.testing.assert_allclose(low, [1.0, 0.0], atol=1e-13)
            np.testing.assert_array_equal(high, [1.0, 0.0])


def test_functions_of_huge_numbers():
    np.testing.assert_array_equal(taut.blend([[-1e300, -1e300, -2e300]], [1e10]), [0.5, 0.5, 0])
    np.testing.assert_array_equal(taut.blend([[0, -1e300], [-1e300, 0]], [1e10, 1e10]), [0.5] * 2)
    with pytest.raises(ValueError, match="overflow"):
        taut.blend([[0.0, 1.0]], [1e200], scale=1e200)
    np.testing.assert_array_equal(taut.logits([0.5, 0.5], scale=1e-320), [0.0, 0.0])
    with pytest.raises(ValueError, match="the logits overflow"):
        taut.logits([0.25, 0.75], scale=1e-320)
    with pytest.raises(ValueError, match="cannot hold"):
        taut.two_class(np.zeros(2, np.float32), -1e39)
    np.testing.assert_array_equal(taut.jvp([0.0, 0.0], [1.7e308, -1.7e308]), [0.85e308, -0.85e308])
    np.testing.assert_array_equal(taut.jvp([0.0, -1e6], [1.7e308, -1.7e308]), [0.0, 0.0])
    assert taut.logsumexp([1.7e308, 1.7e308], scale=INF) == 1.7e308
    tiny = taut.jacobian([0.0, -500.0, -500.0], scale=2.0)
    huge = taut.jacobian([0.0, -500e-300, -500e-300], scale=2e300)
    np.testing.assert_allclose(huge[0], tiny[0] * 1e300, rtol=1e-9)
    assert huge[1, 2] == pytest.approx(-math.exp(-1000 + 300 * math.log(10)) * 2, rel=1e-9)
    assert taut.step_bound([1.7e308] * 4, 1, scale=0.0).upper < 1e-300
    assert taut.step_bound([1.0, -1.0], 2, scale=1e308).upper == pytest.approx(math.sqrt(2))
    big = taut.bounded_logits_lipschitz(3, spread=1e10, p=1, scale=1.7e308)
    assert big.lower <= 0.85e308 <= big.upper
    assert float(big) == 0.85e308


def test_log_sum_exp_at_the_ends_of_the_range():
    bottom = [-1.7976931348623157e308] * 2
    exact = float(bottom[0] / 2 + math.log(2) / 2 / 3.5e-309) * 2
    assert taut.logsumexp(bottom, scale=3.5e-309) == pytest.approx(exact, rel=1e-12)
    x = np.array([1e-30, -3.4e38], np.float32)
    assert taut.logsumexp(x, scale=3.4e-37) == pytest.approx(
        math.exp(3.4e-37 * float(x[1])) / 3.4e-37, rel=1e-6
    )
    for scale in (5e-324, 1e-310, 1e-300, 1e-45):
        assert taut.logsumexp([3.0, -INF], scale=scale) == 3.0


def test_boxes_at_the_largest_scale():
    radius, scale = 4.5e-310, 1.7e308
    bound = taut.local_lipschitz([0.0, 0.0, 0.0], 1, radius=radius, scale=scale)
    odds = math.exp(2 * (scale * radius)) / 2  # of the top entry, which is below ½ in all the box
    truth = scale * (2 * odds / (1 + odds) ** 2)
    assert float(bound) == pytest.approx(truth, rel=1e-12)
    assert bound.lower <= truth
    assert bound.upper >= truth
    low, high = taut.probability_intervals([0.0, 0.0, 0.0], radius, scale=scale)
    np.testing.assert_allclose(high, odds / (1 + odds), rtol=1e-12)
    np.testing.assert_allclose(low, 1 / (1 + 4 * odds), rtol=1e-12)


def test_corners_of_subnormal_boxes_stay_inside():
    x = np.array([-7.947043850878903e-41, 5.526160623911349e-41], np.float32)
    scale, radius = 6.883562431795763e40, 1.7591423032881702e-41
    exact = taut.local_lipschitz(x, 1, scale=scale, radius=radius)
    for p in (2, 3):  # the same for every p, as n = 2
        bound = taut.local_lipschitz(x, p, scale=scale, radius=radius)
        assert bound.lower <= exact.upper <= bound.upper * (1 + 1e-6)


def test_measured_steps_that_overflow():
    for x in (ROW[0], [1.7e308, -1.7e308, 0.0]):
        for along in ("random", "worst"):
            for p in (1, 2, INF):
                found = taut.empirical_lipschitz(x, p, epsilon=2.0, along=along, scale=1e30)
                assert 0 <= found.lower <= 0.5e30
    with pytest.raises(ValueError, match="too large for scale"):
        taut.empirical_lipschitz([0.0, 1.0], epsilon=1e10, scale=1e300)


def extreme_rows(rng, dtype, count):
    """Rows of logits of every size that the dtype has."""
    info = np.finfo(dtype)
    digits = math.log10(float(info.max)) * 0.99
    special = [float(info.max), -float(info.max), 0.0, float(info.smallest_normal), 1.0, -INF]
    for _ in range(count):
        n = int(rng.integers(2, 5))
        kind = rng.integers(4)
        if kind == 0:
            x = rng.standard_normal(n) * 10 ** rng.uniform(-digits, digits - 1)
        elif kind == 1:
            x = rng.choice([-1, 1], n) * 10 ** rng.uniform(-digits, digits, n)
        elif kind == 2:
            x = rng.choice(special, n)
        else:
            x = np.full(n, 10 ** rng.uniform(-digits, digits))
            x[0] *= 1 + 1e-7
        yield x.astype(dtype)


# The slow ones see the first rows by day, and all of them by night.
BY_DAY = {"jax": 8, "array_api_strict": 20, "vmap": 30}


@pytest.mark.parametrize("night", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["numpy", "torch", "array_api_strict", "vmap", "jax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_and_scales_of_every_size(mode, dtype, night):
    """Sides against arbitrary precision; what is checked for p = 3 follows from p = 1 and 2."""
    module = pytest.importorskip({"vmap": "torch", "jax": "jax.numpy"}.get(mode, mode))
    if mode == "jax" and dtype == "float64":
        pytest.skip("JAX without x64")
    rng = np.random.default_rng([len(mode), len(dtype)])
    for row in extreme_rows(rng, dtype, 60 if night else BY_DAY.get(mode, 60)):
        size = float(np.max(np.abs(row[np.isfinite(row)]), initial=1e-300)) or 1.0
        limit = 30 if mode == "jax" else 307
        scale = 10 ** float(
            rng.choice([rng.uniform(-1, 2) - math.log10(size), rng.uniform(-limit, limit)])
        )
        scale = min(max(scale, 10.0**-limit), 10.0**limit)
        radius = 10 ** float(rng.uniform(-40, 40))
        x = module.asarray(row)

        def sides(v, scale=scale, radius=radius):
            found = [*taut.local_lipschitz(v, (1, 2, 3), scale=scale)]
            found += [taut.local_lipschitz(v, p, scale=scale, radius=radius) for p in (1, 2, 3)]
            return tuple(side for b in found for side in (b.lower, b.upper))

        found = module.func.vmap(sides)(x[None]) if mode == "vmap" else sides(x)
        found = np.array([float(side) for side in found]).reshape(6, 2)
        one, two = oracle.exact_constants(row, scale, bits=5000)
        assert np.all(found[:, 0] >= 0)
        assert np.all(found[:, 0] <= found[:, 1])
        for (low, high), (least, most) in zip(
            found[:3], ((one, one), (two, two), (two, one)), strict=True
        ):
            assert not arb(low) > most, (row, scale)
            assert not arb(high) < least, (row, scale)
        for (_, high), least in zip(found[3:], (one, two, two), strict=True):
            assert not arb(high) < least, (row, scale, radius)
