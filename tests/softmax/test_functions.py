"""Softmax as a function: the theorems of the registry's first section."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut

logit = st.floats(-50, 50)
vectors = st.lists(logit, min_size=1, max_size=8).map(np.array)
scales = st.floats(-4, 4)


def reference(x, scale=1.0):
    z = scale * np.asarray(x, dtype=np.longdouble)
    weights = np.exp(z - np.max(z))
    return (weights / np.sum(weights)).astype(np.float64)


@given(vectors, scales)
def test_softmax_is_softmax(x, scale):
    np.testing.assert_allclose(taut.softmax(x, scale=scale), reference(x, scale), rtol=1e-12)
    np.testing.assert_allclose(taut.softmin(x, scale=scale), reference(x, -scale), rtol=1e-12)


@pytest.mark.theorem("shift", "holds")
@given(vectors, st.integers(-1000, 1000))
def test_shift(x, c):
    x = np.round(x * 64) / 64  # so that x + c is exact
    np.testing.assert_array_equal(taut.softmax(x + c), taut.softmax(x))


@pytest.mark.theorem("shift", "falsifiable")
def test_shift_by_different_amounts_matters():
    assert not np.allclose(
        taut.softmax(np.array([0.0, 1.0]) + [0.01, 0.0]), taut.softmax([0.0, 1.0])
    )


@pytest.mark.theorem("stable", "holds")
def test_stable_at_the_edge_of_the_range():
    huge = np.finfo(np.float64).max
    np.testing.assert_array_equal(taut.softmax([huge, -huge]), [1.0, 0.0])
    np.testing.assert_array_equal(taut.softmax([huge, huge]), [0.5, 0.5])
    np.testing.assert_allclose(
        taut.softmax([huge, -huge], scale=0.5 / huge), reference([0.5, -0.5])
    )
    np.testing.assert_array_equal(taut.softmax([1.0, 1.0, 0.0], scale=huge), [0.5, 0.5, 0.0])


@pytest.mark.theorem("stable", "falsifiable")
def test_the_naive_form_is_not_stable():
    with np.errstate(all="ignore"):
        naive = np.exp(np.array([800.0, 0.0])) / np.sum(np.exp(np.array([800.0, 0.0])))
    assert np.isnan(naive[0])
    assert taut.softmax([800.0, 0.0])[0] == 1.0


@pytest.mark.theorem("sharpness", "holds")
def test_sharpness_limits(backend):
    x = backend.array([1.0, 3.0, 3.0, -2.0, -math.inf])
    limits = {math.inf: [0, 0.5, 0.5, 0, 0], -math.inf: [0, 0, 0, 1, 0], 0.0: [0.25] * 4 + [0]}
    for scale, limit in limits.items():
        np.testing.assert_array_equal(backend.numpy(taut.softmax(x, scale=scale)), limit)


@pytest.mark.theorem("sharpness", "attained")
@given(st.lists(st.integers(-5, 5), min_size=2, max_size=6).map(np.array))
def test_sharpness_is_the_limit(x):
    for sign in (1.0, -1.0):
        near = taut.softmax(x, scale=sign * 800)
        np.testing.assert_allclose(near, taut.softmax(x, scale=sign * math.inf), atol=1e-300)
    np.testing.assert_allclose(taut.softmax(x, scale=1e-12), 1 / len(x), rtol=1e-10)


@pytest.mark.theorem("sharpness", "falsifiable")
def test_minus_infinity_is_the_minimum_not_the_maximum():
    """The lecture notes's property 5(c) as printed says maximum."""
    assert taut.softmax([0.0, 1.0], scale=-50)[1] < 1e-20


@pytest.mark.theorem("inverse", "holds")
@given(vectors.filter(lambda x: len(x) > 1), st.floats(0.1, 3) | st.floats(-3, -0.1))
def test_inverse(x, scale):
    x = x / 10
    s = taut.softmax(x, scale=scale)
    np.testing.assert_allclose(taut.logits(s, scale=scale), x - x.mean(), atol=1e-11)
    lse = taut.logsumexp(x, scale=scale)
    np.testing.assert_allclose(
        taut.logits(s, scale=scale, fix="logsumexp", value=float(lse)), x, atol=1e-11
    )
    np.testing.assert_allclose(
        taut.logits(s, scale=scale, fix=-1, value=float(x[-1])), x, atol=1e-11
    )


@pytest.mark.theorem("inverse", "falsifiable")
def test_the_constant_is_lost():
    assert not np.allclose(taut.logits(taut.softmax([5.0, 6.0])), [5.0, 6.0])
    np.testing.assert_array_equal(taut.logits([1.0, 0.0], fix=0), [0.0, -math.inf])


@pytest.mark.theorem("superposition", "holds")
@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.floats(-5, 5), min_size=n, max_size=n), min_size=2, max_size=4
        )
    ),
    st.data(),
)
def test_superposition(inputs, data):
    weights = data.draw(st.lists(st.floats(-3, 3), min_size=len(inputs), max_size=len(inputs)))
    product = math.prod(taut.softmax(x) ** a for x, a in zip(inputs, weights, strict=True))
    expected = product / np.sum(product)
    np.testing.assert_allclose(taut.blend(inputs, weights), expected, rtol=1e-9)


@pytest.mark.theorem("superposition", "falsifiable")
def test_superposition_in_the_log_domain_survives_zeros():
    inputs = [[0.0, -2000.0], [0.0, 2000.0]]
    with np.errstate(all="ignore"):
        product = taut.softmax(inputs[0]) * taut.softmax(inputs[1])
        assert np.isnan(product / product.sum()).all()
    np.testing.assert_array_equal(taut.blend(inputs, [1.0, 1.0]), [0.5, 0.5])


@pytest.mark.theorem("two-class", "holds")
@given(st.floats(-700, 700), st.floats(-700, 700))
def test_two_class(a, b):
    expected = 1 / (1 + np.exp(np.longdouble(b) - np.longdouble(a)))
    np.testing.assert_allclose(float(taut.two_class(a, b)), float(expected), rtol=1e-12)
    np.testing.assert_allclose(taut.two_class([a], [b])[0], taut.softmax([a, b])[0], rtol=1e-15)


@pytest.mark.theorem("two-class", "falsifiable")
def test_two_class_tail_is_not_one_minus_the_other():
    assert float(taut.two_class(-60.0)) == pytest.approx(math.exp(-60), rel=1e-15)
    assert 1 - float(taut.two_class(60.0)) == 0


@given(vectors, st.floats(-4, 4).filter(lambda v: abs(v) > 1e-3))
@pytest.mark.theorem("lse", "holds")
def test_logsumexp_bounds(x, scale):
    value = float(taut.logsumexp(x, scale=scale))
    edge = np.max(x) if scale > 0 else np.min(x)
    slack = 1e-12 * (1 + abs(edge))
    if scale > 0:
        assert edge - slack <= value <= edge + math.log(len(x)) / scale + slack
    else:
        assert edge + math.log(len(x)) / scale - slack <= value <= edge + slack


@pytest.mark.theorem("lse", "attained")
def test_logsumexp_upper_end_is_attained():
    assert float(taut.logsumexp(np.zeros(7), scale=2.0)) == pytest.approx(math.log(7) / 2)
    assert float(taut.logsumexp([3.0, 1.0], scale=math.inf)) == 3.0
    assert float(taut.logsumexp([3.0, 1.0], scale=-math.inf)) == 1.0


@pytest.mark.theorem("lse", "derivative")
def test_gradient_of_logsumexp_is_softmax(torch, jax):
    x = np.array([0.3, -1.2, 2.0, -np.inf])
    for scale in (0.7, -1.5):
        leaf = torch.tensor(x, requires_grad=True)
        taut.logsumexp(leaf, scale=scale).backward()
        np.testing.assert_allclose(leaf.grad.numpy(), taut.softmax(x, scale=scale), rtol=1e-12)
        grad = jax.grad(lambda v, scale=scale: taut.logsumexp(v, scale=scale))(jax.numpy.asarray(x))
        np.testing.assert_allclose(np.asarray(grad), taut.softmax(x, scale=scale), rtol=1e-5)
        h = 1e-6
        finite = [
            (taut.logsumexp(x + h * e, scale=scale) - taut.logsumexp(x - h * e, scale=scale))
            / (2 * h)
            for e in np.eye(4)[:3]
        ]
        np.testing.assert_allclose(finite, taut.softmax(x, scale=scale)[:3], rtol=1e-8)


@pytest.mark.theorem("lse", "falsifiable")
def test_smoothness_is_not_smaller():
    """The gradient changes by more than 0.99 of the stated smoothness between two points."""
    bound = taut.logsumexp_smoothness(scale=3.0)
    change = taut.softmax([1e-3, -1e-3], scale=3.0) - taut.softmax([0.0, 0.0], scale=3.0)
    rate = np.linalg.norm(change) / np.linalg.norm([1e-3, 1e-3])
    assert 0.99 * bound.lower < rate <= bound.upper


def test_smoothness_of_a_linear_map():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((5, 3))
    bound = taut.logsumexp_smoothness(A, scale=2.0)
    assert bound.upper == pytest.approx(np.linalg.norm(A, 2) ** 2, rel=1e-12)
    x, y = rng.standard_normal((2, 3))
    change = A.T @ (taut.softmax(A @ x, scale=2.0) - taut.softmax(A @ y, scale=2.0))
    assert np.linalg.norm(change) <= bound.upper * np.linalg.norm(x - y)


def test_log_softmax(backend):
    x = backend.array([[0.0, -1000.0, -math.inf], [-math.inf, 2.0, 2.0]])
    logs = backend.numpy(taut.log_softmax(x))
    half = -math.log(2)
    expected = [[0.0, -1000.0, -math.inf], [-math.inf, half, half]]
    np.testing.assert_allclose(logs, expected, rtol=1e-6)


def test_rows_that_are_masked_altogether(backend):
    x = backend.array([[-math.inf, -math.inf], [0.0, 0.0]])
    np.testing.assert_array_equal(backend.numpy(taut.softmax(x)), [[0, 0], [0.5, 0.5]])
    assert np.all(np.isneginf(backend.numpy(taut.log_softmax(x))[0]))
    assert backend.numpy(taut.logsumexp(x))[0] == -math.inf
    assert backend.numpy(taut.logsumexp(x, scale=-1.0))[0] == math.inf
    assert backend.numpy(taut.local_lipschitz(x).upper)[0] < 1e-30
    np.testing.assert_array_equal(backend.numpy(taut.jacobian(x))[0], np.zeros((2, 2)))


def test_axis(backend):
    values = np.random.default_rng(0).standard_normal((2, 3, 4))
    x = backend.array(values)
    for axis in (0, 1, 2, -1, -2, -3):
        got = backend.numpy(taut.softmax(x, axis=axis))
        moved = np.moveaxis(taut.softmax(np.moveaxis(values, axis, -1)), -1, axis)
        np.testing.assert_allclose(got, moved, rtol=backend.tolerance())
        norms = backend.numpy(taut.local_lipschitz(x, axis=axis).value)
        expected = taut.local_lipschitz(np.moveaxis(values, axis, -1)).value
        np.testing.assert_allclose(norms, expected, rtol=backend.tolerance())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(torch, jax, dtype):
    for module in (torch, jax.numpy):
        x = (
            module.asarray(np.array([1.0, 2.0, 0.5], dtype=np.float32)).astype(dtype)
            if (module is jax.numpy)
            else torch.tensor([1.0, 2.0, 0.5], dtype=getattr(torch, dtype))
        )
        s = taut.softmax(x)
        assert "float32" in str(s.dtype)
        np.testing.assert_allclose(np.asarray(s), taut.softmax([1.0, 2.0, 0.5]), rtol=1e-6)
        assert "float32" in str(taut.local_lipschitz(x).upper.dtype)


def test_integers_are_promoted(backend):
    x = backend.array([0, 1], "int32")
    np.testing.assert_allclose(backend.numpy(taut.softmax(x)), taut.softmax([0.0, 1.0]), rtol=1e-6)
