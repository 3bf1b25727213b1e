"""Derivatives of every local constant: autodiff against finite differences, and at the kinks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import taut

INF = math.inf
NORMS = ((1, 1), (2, 2), (INF, INF), (1, 2), (1, INF), (3, INF), (1.5, 1.5), (3, 3), (INF, 1))


def rows():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 5)) * 2
    x[1, 3] = -INF
    x[2] *= 5
    return x


def finite_difference(f, x, h=1e-6):
    grad = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        if np.isinf(x[i]):
            continue
        step = np.zeros_like(x)
        step[i] = h
        grad[i] = (f(x + step) - f(x - step)) / (2 * h)
    return grad


@pytest.mark.theorem("local-2", "derivative")
@pytest.mark.theorem("local-1-inf", "derivative")
@pytest.mark.theorem("1-to-q", "derivative")
@pytest.mark.theorem("inf-to-1", "derivative")
@pytest.mark.parametrize(("p", "q"), NORMS)
@pytest.mark.parametrize("scale", [1.0, -0.7])
def test_torch_gradient(torch, p, q, scale):
    x = rows()
    leaf = torch.tensor(x, requires_grad=True)
    taut.local_lipschitz(leaf, p, q, scale=scale).lower.sum().backward()
    expected = finite_difference(
        lambda v: float(np.sum(taut.local_lipschitz(v, p, q, scale=scale).lower)), x
    )
    np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=2e-5, atol=2e-8)


@pytest.mark.parametrize(("p", "q"), [pair for pair in NORMS if pair != (INF, 1)])
def test_jax_gradient(jax, p, q):
    x = rows()
    with jax.enable_x64(True):
        grad = jax.grad(lambda v: taut.local_lipschitz(v, p, q).lower.sum())(jax.numpy.asarray(x))
        expected = finite_difference(
            lambda v: float(np.sum(taut.local_lipschitz(v, p, q).lower)), x
        )
        np.testing.assert_allclose(np.asarray(grad), expected, rtol=2e-5, atol=2e-8)


def test_second_derivatives(torch):
    x = torch.tensor(rows()[[0, 3, 4]], requires_grad=True)

    def both(v):
        return tuple(bound.value for bound in taut.local_lipschitz(v, (1, 2)))

    assert torch.autograd.gradcheck(both, (x,))
    assert torch.autograd.gradgradcheck(both, (x,))


def gradient(torch, row, p, dtype=None):
    """Gradient of the upper side; that of the lower side must be finite as well."""
    leaf = torch.tensor(row, dtype=dtype or torch.float64, requires_grad=True)
    bound = taut.local_lipschitz(leaf, p)
    (lower,) = torch.autograd.grad(bound.lower.sum(), leaf, retain_graph=True)
    assert np.all(np.isfinite(lower.numpy()))
    bound.upper.sum().backward()
    return leaf.grad.numpy()


@pytest.mark.parametrize("p", [1, 1.5, 2, 4, INF])
class TestSingularPoints:
    def test_one_hot(self, torch, p):
        for row in ([0.0, -800.0, -900.0], [0.0, -INF, -INF]):
            np.testing.assert_array_equal(gradient(torch, row, p), 0)

    def test_one_logit_and_masked_row(self, torch, p):
        np.testing.assert_array_equal(gradient(torch, [3.0], p), 0)
        np.testing.assert_array_equal(gradient(torch, [-INF, -INF], p), 0)

    def test_uniform(self, torch, p):
        if p in (1, 2, INF):
            np.testing.assert_allclose(gradient(torch, [1.0, 1.0, 1.0], p), 0, atol=1e-15)
        else:
            assert np.all(np.isfinite(gradient(torch, [1.0, 1.0, 1.0], p)))

    def test_ties_share(self, torch, p):
        grad = gradient(torch, [1.0, 1.0, 0.0], p)
        assert np.all(np.isfinite(grad))
        if p in (1, 2, INF):
            assert grad[0] == pytest.approx(grad[1])

    def test_float32(self, torch, p):
        row = [0.5, -1.0, 2.0, 0.1]
        np.testing.assert_allclose(
            gradient(torch, row, p, torch.float32), gradient(torch, row, p), rtol=1e-4, atol=1e-6
        )


def test_near_ties_of_two_are_continuous(torch):
    tie = gradient(torch, [0.0, 0.0, -1.0], 2)
    for gap in (1e-8, 1e-13, 1e-16, 1e-30):
        np.testing.assert_allclose(gradient(torch, [0.0, -gap, -1.0], 2), tie, rtol=1e-6)


def test_peaked_gradients_keep_their_digits(torch):
    """At s₁ = 1 − e^{-60} the gradient is about e^{-60}, not rounding noise."""
    grad = gradient(torch, [0.0, -60.0], 2)
    expected = 2 * math.exp(-60)
    np.testing.assert_allclose(grad, [-expected, expected], rtol=1e-12)


def test_gradient_descent_lowers_the_constant(torch):
    x = torch.tensor([3.0, 2.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    before = float(taut.local_lipschitz(x))
    for _ in range(50):
        loss = taut.local_lipschitz(x).value
        (grad,) = torch.autograd.grad(loss, x)
        x = (x - grad).detach().requires_grad_()
    assert float(taut.local_lipschitz(x)) < 0.8 * before


def test_causal_masks_do_not_poison_a_penalty(torch):
    scores = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores.requires_grad_()
    masked = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -INF)
    for p in (1, 2, 3):
        bound = taut.local_lipschitz(masked, p)
        loss = bound.lower.mean() + bound.upper.mean()
        (grad,) = torch.autograd.grad(loss, scores, retain_graph=True)
        assert torch.isfinite(grad).all()


def test_zero_steps_and_limits_have_gradients(torch):
    d = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    taut.step_bound(d, p=2).upper.backward()
    assert torch.isfinite(d.grad).all()
    x = torch.tensor([1.0, 3.0, 3.0], requires_grad=True)
    taut.logsumexp(x, scale=INF).backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0.5, 0.5])
