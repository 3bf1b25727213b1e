"""log_softmax and logsumexp keep their digits where one logit dominates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, ctx

import taut
from tests.conftest import Backend

INF = math.inf
ROWS = (
    [100.0, 0.0],
    [0.0, -37.0, -40.0],
    [-1e-17, -37.0],
    [0.0, 0.0],
    [3.0, 3.0, 3.0, -1.0],
    [0.0, -50.3, -50.3, -50.3, -60.1],
    [5.0],
    [2.0, -INF, -30.0],
    [-INF, 1.0],
    [1000.1, 950.7, -3000.0],
    [0.1, 0.2, 0.3],
    [-0.6931471805599453, -0.6931471805599453],
)


def truth(row, scale):
    """log softmax of every entry, log-sum-exp, and the larger of the two terms of the latter."""
    ctx.prec = 1500
    lam = arb(scale)
    finite = [float(v) for v in row if v != -INF]
    top = max(finite, key=lambda v: scale * v)
    others = list(finite)
    others.remove(top)
    logs = sum(((lam * (arb(v) - arb(top))).exp() for v in others), arb(0)).log1p()
    each = [lam * (arb(float(v)) - arb(top)) - logs if v != -INF else None for v in row]
    return each, arb(top) + logs / lam, max(abs(float(top)), abs(float(logs / lam)))


def check(row, scale, logs, total, eps, least):
    """A few units in the last place, or of underflow."""
    each, lse, size = truth(row, scale)
    units = 8 + 2 * math.log2(len(row))
    for found, exact in zip(logs, each, strict=True):
        if exact is None:
            assert found == -INF
        else:
            error = abs(arb(float(found)) - exact)
            assert error <= abs(exact) * arb(units * eps) + arb(least), (row, scale, found)
    assert abs(arb(float(total)) - lse) <= arb(units * eps * size + least), (row, scale, total)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1.0, 0.3, 17.0, -1.0, -0.7])
def test_every_entry_has_its_digits(backend, dtype, scale):
    single = dtype == "float32" or backend.name == "jax"
    eps, least = (2.0**-23, 2.0**-122) if single else (2.0**-52, 2.0**-1070)
    for row in ROWS:
        x = np.asarray(row, np.float32 if single else np.float64)
        logs = backend.numpy(taut.log_softmax(backend.array(x, dtype), scale=scale))
        total = backend.numpy(taut.logsumexp(backend.array(x, dtype), scale=scale))
        check(x, scale, logs, total, eps, least)


def test_random_rows():
    rng = np.random.default_rng(0)
    for _ in range(300):
        x = rng.standard_normal(int(rng.integers(1, 200))) * 10 ** rng.uniform(-3, 3)
        scale = 10 ** rng.uniform(-3, 3)
        for dtype, eps, least in ((np.float64, 2.0**-52, 5e-323), (np.float32, 2.0**-23, 1e-43)):
            row = x.astype(dtype)
            logs, total = taut.log_softmax(row, scale=scale), taut.logsumexp(row, scale=scale)
            check(row, scale, logs, total, eps, least)


def test_double_precision_in_jax(jax):
    with jax.enable_x64(True):
        for row in ROWS:
            x = jax.numpy.asarray(row)
            check(row, 1.0, taut.log_softmax(x), taut.logsumexp(x), 2.0**-52, 2.0**-1018)


def test_axes(backend):
    values = np.array([[100.0, 0.0, -INF], [0.0, 0.0, 1.0], [-40.0, 3.0, 1.0]])
    for axis in (0, 1, -1):
        found = backend.numpy(taut.log_softmax(backend.array(values), axis=axis))
        rows = np.moveaxis(values, axis, -1)
        expected = np.moveaxis(np.array([taut.log_softmax(row) for row in rows]), -1, axis)
        atol = 1e-37 if backend.name == "jax" else 0.0  # XLA flushes subnormal numbers
        np.testing.assert_allclose(found, expected, rtol=backend.tolerance(), atol=atol)


def test_limits():
    np.testing.assert_array_equal(taut.log_softmax([1.0, 0.0], scale=INF), [0.0, -INF])
    half = -math.log(2)
    np.testing.assert_allclose(taut.log_softmax([1.0, 1.0, 0.0], scale=INF), [half, half, -INF])
    np.testing.assert_allclose(taut.log_softmax([5.0, -INF, 2.0], scale=0.0), [half, -INF, half])
    assert not np.signbit(taut.log_softmax([7.0])).any()


def expected_derivatives(row, scale):
    """λ(δᵢⱼ − sⱼ) to full relative precision, and −λ² times the covariance."""
    s = taut.softmax(np.asarray(row, float), scale=scale)
    jacobian = np.where(np.eye(len(row)) > 0, 0.0, -s)
    for i in range(len(row)):
        jacobian[i, i] = sum(s[j] for j in range(len(row)) if j != i)
    return scale * jacobian, -scale * taut.jacobian(row, scale=scale)


FINITE = [row for row in ROWS if -INF not in row]
NIGHT = pytest.mark.slow


@pytest.mark.parametrize("row", FINITE)
@pytest.mark.parametrize("scale", [1.0, -0.7, 3.0])
def test_derivatives(torch, row, scale):
    jacobian, hessian = expected_derivatives(row, scale)
    x = torch.tensor(row, dtype=torch.float64)

    def function(v):
        return taut.log_softmax(v, scale=scale)

    for found in (
        torch.autograd.functional.jacobian(function, x),
        torch.func.jacrev(function)(x),
        torch.func.vmap(torch.func.jacrev(function))(x[None])[0],
    ):
        np.testing.assert_allclose(found, jacobian, rtol=1e-11, atol=1e-300)
    for i in range(len(row)):
        found = torch.autograd.functional.hessian(lambda v, i=i: function(v)[i], x)
        np.testing.assert_allclose(found, hessian, rtol=1e-9, atol=1e-30)
    found = torch.autograd.functional.jacobian(lambda v: taut.logsumexp(v, scale=scale), x)
    np.testing.assert_allclose(found, taut.softmax(row, scale=scale), rtol=1e-11, atol=1e-300)
    found = torch.autograd.functional.hessian(lambda v: taut.logsumexp(v, scale=scale), x)
    np.testing.assert_allclose(found, -hessian / scale, rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize("row", [FINITE[0], *(pytest.param(r, marks=NIGHT) for r in FINITE[1:])])
@pytest.mark.parametrize("scale", [1.0, -0.7, 3.0])
def test_derivatives_in_jax(jax, row, scale):
    """JAX compiles for every length: those of other rows wait for the night."""
    jacobian, hessian = expected_derivatives(row, scale)

    def function(v):
        return taut.log_softmax(v, scale=scale)

    with jax.enable_x64(True):
        v = jax.numpy.asarray(row)
        np.testing.assert_allclose(jax.jacrev(function)(v), jacobian, rtol=1e-11, atol=1e-300)
        np.testing.assert_allclose(
            jax.hessian(lambda z: function(z)[0])(v), hessian, rtol=1e-9, atol=1e-30
        )


def test_derivatives_of_masked_rows(torch, jax):
    for row in ([2.0, -INF, -30.0], [-INF, -INF], [-INF, 1.0]):
        x = torch.tensor(row, dtype=torch.float64, requires_grad=True)
        logs = taut.log_softmax(x)
        (grad,) = torch.autograd.grad(logs[torch.isfinite(logs)].sum(), x)
        assert torch.isfinite(grad).all()
        (grad,) = torch.autograd.grad(taut.logsumexp(x), x)
        assert torch.isfinite(grad).all()
        grad = jax.grad(lambda v: jax.numpy.where(v > -INF, taut.log_softmax(v), 0.0).sum())(
            jax.numpy.asarray(row)
        )
        assert np.isfinite(np.asarray(grad)).all()


def test_long_rows_of_ties(torch):
    """The derivative with respect to the largest entry is 1/n, which is far below 1."""
    n = 1 << 14
    x = torch.zeros(n, requires_grad=True)
    (grad,) = torch.autograd.grad(taut.log_softmax(x)[-1], x)
    np.testing.assert_allclose(grad[:-1].numpy(), -1 / n, rtol=1e-5)
    (grad,) = torch.autograd.grad(taut.log_softmax(x)[0], x)
    np.testing.assert_allclose(grad[1:].numpy(), -1 / n, rtol=1e-5)


def test_the_plain_form_has_no_digits():
    x = Backend("numpy").array([100.0, 0.0])
    assert (x - np.log(np.sum(np.exp(x))))[0] == 0
    assert taut.log_softmax(x)[0] == pytest.approx(-math.exp(-100), rel=1e-14)
    assert taut.logsumexp(x - 100)[()] == pytest.approx(math.exp(-100), rel=1e-14)
