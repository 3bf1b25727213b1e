"""Networks built to have small constants: attention in the largest token, averages, balls."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from taut import At, Ball, Everywhere
from taut.control import LipschitzTransformer
from taut.control.lipschitz.activation import MaxMin
from taut.control.lipschitz.attention import BoundedAttention
from taut.control.lipschitz.embedding import TokenBall
from taut.networks import certify, propagate, register


def token_norm(jacobian: torch.Tensor, starts: int = 8, rounds: int = 60) -> float:
    """A lower bound of the norm between largest tokens, (queries, width, keys, width), by ascent.

    For a direction z of one output token the worst changes of the input tokens are known, and
    given these, so is the best direction.
    """
    best = 0.0
    for block in jacobian:  # one output token: (width, keys, width)
        for _ in range(starts):
            z = torch.randn(block.shape[0], dtype=block.dtype)
            for _ in range(rounds):
                pulled = torch.einsum("a,akb->kb", z, block)
                lengths = pulled.norm(dim=1, keepdim=True)
                moved = torch.einsum("akb,kb->a", block, pulled / lengths.clamp(min=1e-300))
                z = moved / moved.norm().clamp(min=1e-300)
            best = max(best, float(torch.einsum("a,akb->kb", z, block).norm(dim=1).sum()))
    return best


def spectral(matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.matrix_norm(matrix.detach(), 2)


def jacobian_of(function, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.functional.jacobian(lambda t: function(t[None])[0], x)


def attention(width=4, heads=2, tokens=3, causal=False, seed=0, size=1.0) -> BoundedAttention:
    torch.manual_seed(seed)
    layer = BoundedAttention(
        width, heads, reach=2.0, sharpness=size, tokens=tokens, causal=causal
    ).double()
    with torch.no_grad():
        for weight in (layer.query, layer.key, layer.value, layer.output):
            weight.copy_(torch.randn_like(weight))
        layer.position.copy_(torch.randn_like(layer.position))
    return layer


def bound_of(module: nn.Module, radius: float, shape: tuple[int, int], norm="token") -> float:
    found = certify(module, Ball(radius, shape=shape), norm=norm, measure=False).bound
    return float(found.upper[0])


@pytest.mark.theorem("attn-heads-token", "holds")
@pytest.mark.parametrize("seed", range(12))
def test_attention_in_the_largest_token_holds(seed):
    """Ascent over the tokens in the ball, and over the directions of change."""
    heads, causal, size = 1 + seed % 2, seed % 3 == 0, (0.3, 1.0, 3.0)[seed % 3]
    layer = attention(heads=heads, causal=causal, seed=seed, size=size)
    bound = bound_of(layer, 2.0, (3, 4))
    x = torch.randn(3, 4, dtype=torch.float64)
    x = (2.0 * x / x.norm(dim=1, keepdim=True)).requires_grad_()
    found = 0.0
    for _step in range(25):
        jacobian = torch.autograd.functional.jacobian(lambda t: layer(t[None])[0], x, True)
        pulled = torch.randn(3, 4, dtype=x.dtype)
        for _ in range(5):  # for every output token a direction
            rows = torch.einsum("qa,qakb->qkb", pulled, jacobian)
            unit = rows / rows.norm(dim=2, keepdim=True).clamp(min=1e-300)
            pulled = torch.einsum("qakb,qkb->qa", jacobian, unit).detach()
            pulled = pulled / pulled.norm(dim=1, keepdim=True).clamp(min=1e-300)
        value = torch.einsum("qa,qakb->qkb", pulled, jacobian).norm(dim=2).sum(1).max()
        found = max(found, float(value.detach()))
        (slope,) = torch.autograd.grad(value, x)
        with torch.no_grad():
            x += 0.3 * slope / slope.norm().clamp(min=1e-300)
            x *= (2.0 / x.norm(dim=1, keepdim=True)).clamp(max=1.0)
    assert 0.05 * bound < found <= bound


def opposite_keys(c: float) -> tuple[nn.Module, torch.Tensor]:
    """One head, a query at right angles to two opposite keys that it alone sees, and the tokens."""
    reach = 1.5
    layer = attention(width=2, heads=1, tokens=3, size=c)
    layer.scale = c / reach**2
    eye = torch.eye(2, dtype=torch.float64)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        for weight, value in zip(
            (layer.query, layer.key, layer.value, layer.output), (turn, eye, eye, eye), strict=True
        ):
            weight.copy_(value)
        # A term that hides the query's own token, and leaves the keys alike.
        layer.position.copy_(torch.tensor([[0.0, 0.0, -1e4, 0.0, 0.0]]))
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64) * reach
    return layer, x


@pytest.mark.theorem("attn-heads-token", "attained")
@pytest.mark.theorem("attn-heads-token", "falsifiable")
@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_attention_in_the_largest_token_is_attained(c):
    layer, x = opposite_keys(c)
    bound = bound_of(layer, 1.5, (3, 2))
    assert bound == pytest.approx(math.sqrt(1 + c * c) + c, rel=1e-9)
    found = token_norm(jacobian_of(layer, x))
    assert found <= bound
    assert found > 0.999 * bound  # so that 0.99 times the bound is exceeded


class Averaged(nn.Module):
    """kx + pW₂φ(W₁x)."""

    def __init__(self, function, kept: float, passed: float) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(5, 3, dtype=torch.float64))
        self.second = nn.Parameter(torch.randn(3, 5, dtype=torch.float64))
        self.function, self.kept, self.passed = function, kept, passed

    def forward(self, x):
        hidden = self.function(nn.functional.linear(x, self.first))
        return self.kept * x + self.passed * nn.functional.linear(hidden, self.second)


@register(Averaged)
def _averaged(run, module, x):
    first, second = (module.first, None), (module.second, None)
    return run.averaged_mlp(x, first, module.function, second, module.kept, module.passed)


@pytest.mark.theorem("averaged-mlp", "holds")
@pytest.mark.parametrize("norm", ["l2", "token"])
@pytest.mark.parametrize("seed", range(6))
def test_averaged_networks_hold(seed, norm):
    torch.manual_seed(seed)
    module = Averaged((nn.GELU(), nn.ReLU(), nn.Tanh())[seed % 3], 0.7, (0.3, -2.0)[seed % 2])
    found = certify(module, Everywhere(shape=(1, 3)), norm=norm, measure=False).bound.upper[0]
    apart = 0.7 + abs(module.passed) * 1.129 * float(
        spectral(module.second) * spectral(module.first)
    )
    assert found < apart
    for size in (0.1, 1.0, 10.0):
        for x in torch.randn(20, 1, 3, dtype=torch.float64) * size:
            here = jacobian_of(module, x).reshape(3, 3)
            assert float(spectral(here)) <= found


@pytest.mark.theorem("averaged-mlp", "attained")
@pytest.mark.theorem("averaged-mlp", "falsifiable")
def test_averaged_networks_are_attained_by_linear_functions():
    torch.manual_seed(0)
    module = Averaged(nn.Identity(), 0.7, 0.3)
    found = certify(module, Everywhere(shape=(1, 3)), measure=False).bound.upper[0]
    matrix = 0.7 * torch.eye(3, dtype=torch.float64) + 0.3 * module.second @ module.first
    exact = float(spectral(matrix))
    assert exact <= found < exact * (1 + 1e-9)
    assert exact > 0.99 * found


@pytest.mark.theorem("nonexpansive", "holds")
@pytest.mark.theorem("nonexpansive", "attained")
@pytest.mark.theorem("nonexpansive", "falsifiable")
@pytest.mark.parametrize("module", [TokenBall(1.0), MaxMin()])
def test_balls_and_sorted_pairs_move_nothing_apart(module):
    torch.manual_seed(0)
    x = torch.randn(2000, 1, 6, dtype=torch.float64)
    y = x + torch.randn_like(x) * 10.0 ** torch.randint(-6, 1, (2000, 1, 1))
    moved = (module(x) - module(y)).norm(dim=-1) / (x - y).norm(dim=-1)
    assert float(moved.max()) <= 1 + 1e-9
    near = 0.1 * x[:50] / x[:50].norm(dim=-1, keepdim=True)
    ratio = (module(near) - module(near * 1.1)).norm(dim=-1) / (near - near * 1.1).norm(dim=-1)
    assert float(ratio.min()) > 0.99
    for norm in ("l2", "token"):
        found = certify(module, Everywhere(shape=(4, 6)), norm=norm, measure=False).bound
        assert found.upper[0] == 1.0
    assert bool((module(x).norm(dim=-1) <= x.norm(dim=-1) * (1 + 1e-12)).all())


def test_bounds_are_propagated_through_averages():
    """Near an input, by affine bounds; balls and sorted pairs by their constants."""
    torch.manual_seed(0)
    model = LipschitzTransformer.of_text(
        5, tokens=3, width=4, layers=1, heads=2, target=1.0, activation="relu"
    ).double()
    x = 0.3 * torch.randn(1, 3, 4, dtype=torch.float64)
    found = propagate(model, At(x, 0.05)).bound
    for _ in range(200):
        step = torch.randn_like(x)
        step *= 0.05 / step.norm()
        y = model(inputs_embeds=x + step).detach().numpy()
        assert np.all(y <= found.upper.reshape(y.shape))
        assert np.all(y >= found.lower.reshape(y.shape))
