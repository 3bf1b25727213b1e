"""The function of PyTorch behind differentiated constants: values and gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

import taut
from tests.helpers.hard_rows import hard_rows

INF = math.inf


def logits(torch, n, dtype):
    return torch.tensor(hard_rows(n), dtype=dtype)


def by_formula(torch, x, one, two, scale):
    """The gradient that autograd finds from a formula, in float64."""
    from taut._softmax.derivatives import attach

    leaf = x.double().requires_grad_()
    zero = torch.zeros(x.shape[:-1], dtype=torch.float64)
    values = attach(zero, zero, leaf, scale)
    (grad,) = torch.autograd.grad(values, leaf, (one.double(), two.double()))
    return grad


@pytest.mark.parametrize("scale", [1.0, 0.3, 40.0])
@pytest.mark.parametrize("n", [1, 2, 3, 64, 130, 300])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_gradient_is_that_of_the_formula(torch, kind, n, scale):
    x = logits(torch, n, getattr(torch, kind))
    one, two = torch.randn(2, len(x), generator=torch.Generator().manual_seed(0)).to(x.dtype)
    leaf = x.clone().requires_grad_()
    first, second = taut.local_lipschitz(leaf, (1, 2), scale=scale)
    (grad,) = torch.autograd.grad((first.value * one + second.upper * two).sum(), leaf)
    expected = by_formula(torch, x, one, two, scale)
    assert grad.dtype == x.dtype
    assert torch.isfinite(grad).all()
    size = expected.abs().amax(-1, keepdim=True) + 1e-30
    # What cancels in a row costs float32 some 30 units in the last place; worse rows go in float64.
    assert float(((grad - expected) / size).abs().max()) < (4e-6 if kind == "float32" else 1e-7)


@pytest.mark.parametrize("n", [5, 200])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_ties_after_many_other_rows(torch, kind, n):
    """Batches are worked in the same memory: a row must not find what another row left there."""
    rows = np.random.default_rng(0).standard_normal((600, n))
    rows[300:] = np.round(2 * rows[300:])
    rows[300:, 0] = rows[300:, 1] = rows[300:].max(-1)
    x = torch.tensor(rows, dtype=getattr(torch, kind)).requires_grad_()
    ones = torch.ones(len(rows))
    (grad,) = torch.autograd.grad(taut.local_lipschitz(x).value.sum(), x)
    expected = by_formula(torch, x.detach(), 0 * ones, ones, 1.0)
    size = expected.abs().amax(-1, keepdim=True) + 1e-30
    assert float(((grad - expected) / size).abs().max()) < (1e-6 if kind == "float32" else 1e-7)


@pytest.mark.parametrize("n", [2, 3, 64])
def test_digits_next_to_ties_in_float32(torch, n):
    """Two or three logits that are nearly tied, where the terms of the gradient cancel."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((600, n))
    top = x.max(-1)
    for j in range(1, min(n, 3)):
        rows, places = np.arange(j - 1, 600, j), (x.argmax(-1) + j) % n
        x[rows, places[rows]] = top[rows] - 10.0 ** rng.uniform(-4, -0.5, len(rows))
    leaf = torch.tensor(x, dtype=torch.float32).requires_grad_()
    (grad,) = torch.autograd.grad(taut.local_lipschitz(leaf).value.sum(), leaf)
    ones = torch.ones(len(x))
    expected = by_formula(torch, leaf.detach(), 0 * ones, ones, 1.0)
    size = expected.abs().amax(-1, keepdim=True)
    assert float(((grad - expected) / size).abs().max()) < 1.5e-6


def test_values_are_those_without_a_gradient(torch):
    for n in (3, 200):
        x = logits(torch, n, torch.float32)
        with_grad = taut.local_lipschitz(x.clone().requires_grad_(), (1, 2))
        for a, b in zip(with_grad, taut.local_lipschitz(x, (1, 2)), strict=True):
            for side in ("lower", "value", "upper"):
                assert torch.equal(getattr(a, side).detach(), getattr(b, side))


def test_logits_too_coarse_for_the_kernel(torch):
    x = torch.tensor([[1e25, 1e25, 0.0], [3e25, 1e25, -2e25]], requires_grad=True)
    taut.local_lipschitz(x).value.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_nan_is_refused_with_a_gradient(torch):
    x = torch.tensor([[0.0, math.nan, 1.0]], requires_grad=True)
    with pytest.raises(ValueError, match="x contains NaN"):
        taut.local_lipschitz(x)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("n", [2, 3, 64, 129])
def test_derivatives_beyond_float32_are_infinite_and_no_others(torch, n, p):
    scale = 1e20  # derivatives grow with its square
    rows = np.random.default_rng(0).standard_normal((50, n)) * 8
    x = torch.tensor(rows / scale, dtype=torch.float32).requires_grad_()
    (found,) = torch.autograd.grad(taut.local_lipschitz(x, p, scale=scale).value.sum(), x)
    y = x.detach().double().requires_grad_()
    (true,) = torch.autograd.grad(taut.local_lipschitz(y, p, scale=scale).value.sum(), y)
    assert not found.isnan().any()
    assert found.isinf().any()
    assert ((found.double() / true - 1).abs() < 1e-3)[true.abs() < 1e38].all()
    assert (found.isinf() & (found.sign() == true.sign()))[true.abs() > 1e39].all()


@pytest.mark.parametrize("p", [1, 2])
def test_next_to_a_tie_it_is_not_the_tie_s(torch, p):
    """The 1-constant has a kink at every tie, the 2-constant where three are tied."""
    rng = np.random.default_rng(p)
    rows = rng.standard_normal((300, 5))
    near = rows.max(-1)[:, None] + 10.0 ** rng.uniform(-9, -3, (300, 1)) * rows
    count = rng.integers(2, 6, 300)
    x = torch.tensor(np.where(np.arange(5) < count[:, None], near, rows - 5))
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(taut.local_lipschitz(leaf, p).value.sum(), leaf)
    ones = torch.ones(len(x), dtype=torch.float64)
    expected = by_formula(torch, x, ones * (p == 1), ones * (p == 2), 1.0)
    # The formula is the less accurate one: distances of the root are differences there.
    assert float((grad - expected).abs().max()) < 1e-6


def test_near_ties_against_sixty_digits(torch):
    """Three nearly tied logits: central differences of the root in mpmath."""
    leaf = torch.tensor([0.0, -0.5e-8, -2e-8, -1.0], dtype=torch.float64).requires_grad_()
    taut.local_lipschitz(leaf).value.backward()
    expected = [0.0794374250488, 0.0382616500499, -0.0852656772148, -0.032433397884]
    assert leaf.grad.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_gaps_far_below_one_unit_in_the_last_place(torch, kind, create_graph):
    """The derivative is that of the limit: it depends on the ratios of the gaps alone."""
    for gap in (1e-20, 1e-35) if kind == "float32" else (1e-20, 1e-280, 1e-302):
        x = torch.tensor([3.0, 1.0, 0.0, -1.0, -2.0], dtype=torch.float64) * gap
        leaf = x.to(getattr(torch, kind)).requires_grad_()
        value = taut.local_lipschitz(leaf).value
        (grad,) = torch.autograd.grad(value, leaf, create_graph=create_graph)
        # by arithmetic of 700 digits
        expected = [0.113697884, -0.0112282905, -0.0302329471, -0.0351381442, -0.0370985024]
        assert grad.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("gap", [5e-324, 1e-302, 1e-297])
def test_two_logits_next_to_each_other_are_stationary(torch, gap):
    for row in ([gap, 0.0], [gap, 0.0, -INF]):
        leaf = torch.tensor(row, dtype=torch.float64).requires_grad_()
        taut.local_lipschitz(leaf).value.backward()
        assert float(leaf.grad.abs().max()) < 1e-15


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own jit
@pytest.mark.parametrize("p", [1, 2])
def test_forward_mode(torch, p):
    x = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]], dtype=torch.float64)
    jacobian, forward = torch.autograd.functional.jacobian, torch.autograd.forward_ad

    def value(x):
        return taut.local_lipschitz(x, p).value

    expected = jacobian(value, x)
    assert float(expected.abs().max()) > 0.1
    for way in ({}, {"strategy": "forward-mode"}):
        torch.testing.assert_close(jacobian(value, x, vectorize=True, **way), expected)
    with forward.dual_level():
        moved = forward.unpack_dual(value(forward.make_dual(x, torch.ones_like(x) * x))).tangent
    torch.testing.assert_close(moved, (expected * x).sum((1, 2)))
