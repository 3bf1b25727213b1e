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
from taut.control.lipschitz.norm import Centring, norm_layer
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


def attention(
    width=4, heads=2, tokens=3, causal=False, seed=0, size=1.0, kind="dot_product"
) -> BoundedAttention:
    torch.manual_seed(seed)
    layer = BoundedAttention(
        width, heads, reach=2.0, sharpness=size, tokens=tokens, causal=causal, kind=kind
    ).double()
    with torch.no_grad():
        for name in layer.names:
            getattr(layer, name).copy_(torch.randn(width, width))
        layer.position.copy_(torch.randn_like(layer.position))
    return layer


def bound_of(module: nn.Module, radius: float, shape: tuple[int, int], norm="token") -> float:
    found = certify(module, Ball(radius, shape=shape), norm=norm, measure=False).bound
    return float(found.upper[0])


@pytest.mark.theorem("attn-heads-token", "holds")
@pytest.mark.theorem("l2-ball", "holds")
@pytest.mark.parametrize("kind", ["dot_product", "l2"])
@pytest.mark.parametrize("seed", range(8))
def test_attention_in_the_largest_token_holds(seed, kind):
    """Ascent over the tokens in the ball, and over the directions of change."""
    heads, causal, size = 1 + seed % 2, seed % 3 == 0, (0.3, 1.0, 3.0)[seed % 3]
    size = size / 16 if kind == "l2" else size  # both sides of where the weights begin to cost
    layer = attention(heads=heads, causal=causal, seed=seed, size=size, kind=kind)
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
    assert 0.01 * bound < found <= bound


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


@pytest.mark.theorem("l2-ball", "holds")
@pytest.mark.parametrize("seed", range(8))
def test_distances_on_a_ball_hold_in_l2(seed):
    """Ascent over the tokens, by the exact norm of the derivative; others at random."""
    size = (0.02, 0.1, 0.5, 2.0)[seed % 4]
    layer = attention(heads=1 + seed % 2, seed=seed, size=size, kind="l2", causal=seed > 5)
    bound = bound_of(layer, 2.0, (3, 4), "l2")
    x = torch.randn(3, 4, dtype=torch.float64)
    x = (2.0 * x / x.norm(dim=1, keepdim=True)).requires_grad_()
    found = 0.0
    for _step in range(25):
        jacobian = torch.autograd.functional.jacobian(lambda t: layer(t[None])[0], x, True)
        value = torch.linalg.matrix_norm(jacobian.reshape(12, 12), 2)
        found = max(found, float(value.detach()))
        (slope,) = torch.autograd.grad(value, x)
        with torch.no_grad():
            x += 0.3 * slope / slope.norm().clamp(min=1e-300)
            x *= (2.0 / x.norm(dim=1, keepdim=True)).clamp(max=1.0)
    assert 0.01 * bound < found <= bound


@pytest.mark.parametrize("seed", range(6))
def test_distances_near_an_input_hold_with_positions(seed):
    """Fixed terms and tied values in the bound by covariances."""
    size, radius = (0.05, 0.5, 3.0)[seed % 3], (0.0, 0.2)[seed % 2]
    layer = attention(heads=2, seed=seed, size=size, kind="l2", causal=seed > 3)
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    for norm in ("l2", "token"):
        bound = float(certify(layer, At(x, radius), norm=norm, measure=False).bound.upper[0])
        for _ in range(20):
            step = torch.randn_like(x)
            jacobian = jacobian_of(layer, (x + radius * step / step.norm())[0])
            if norm == "l2":
                found = float(spectral(jacobian.reshape(12, 12)))
            else:
                found = token_norm(jacobian, starts=2, rounds=10)
            assert 0.01 * bound < found <= bound


@pytest.mark.theorem("l2-ball", "attained")
@pytest.mark.theorem("l2-ball", "falsifiable")
@pytest.mark.parametrize("norm", ["l2", "token"])
def test_distances_on_a_ball_are_approached_with_small_scores(norm):
    """The bound falls to the norms of the maps, and positions can lead all tokens to themselves."""
    layer = attention(heads=1, size=1e-3, kind="l2")
    with torch.no_grad():
        for name in layer.names:
            getattr(layer, name).copy_(torch.eye(4))
        layer.position.copy_(torch.tensor([[0.0, 0.0, 50.0, 0.0, 0.0]]))
    bound = bound_of(layer, 2.0, (3, 4), norm)
    assert bound == pytest.approx(1 + 1e-3, rel=1e-6)
    x = torch.randn(3, 4, dtype=torch.float64)
    jacobian = jacobian_of(layer, x)
    found = float(spectral(jacobian.reshape(12, 12))) if norm == "l2" else token_norm(jacobian)
    assert 0.99 * bound < found <= bound


def test_distances_cost_nothing_until_scores_range_over_one():
    """Theorem l2-ball: keys and values cost 1 for 2c ≤ 1, and dot products √(1 + c²)."""
    for c in (0.1, 0.5):
        for kind, keys in (("l2", 1.0), ("dot_product", math.hypot(1.0, c))):
            layer = attention(heads=1, size=c, kind=kind)
            with torch.no_grad():
                for name in layer.names:
                    getattr(layer, name).copy_(torch.eye(4))
            assert bound_of(layer, 2.0, (3, 4)) == pytest.approx(keys + c, rel=1e-9)


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
@pytest.mark.parametrize("module", [TokenBall(1.0), MaxMin(), Centring()])
def test_balls_sorted_pairs_and_centring_move_nothing_apart(module):
    torch.manual_seed(0)
    x = torch.randn(2000, 1, 6, dtype=torch.float64)
    y = x + torch.randn_like(x) * 10.0 ** torch.randint(-6, 1, (2000, 1, 1))
    moved = (module(x) - module(y)).norm(dim=-1) / (x - y).norm(dim=-1)
    assert float(moved.max()) <= 1 + 1e-9
    near = x[:50] - x[:50].mean(dim=-1, keepdim=True)
    near = 0.1 * near / near.norm(dim=-1, keepdim=True)
    ratio = (module(near) - module(near * 1.1)).norm(dim=-1) / (near - near * 1.1).norm(dim=-1)
    assert float(ratio.min()) > 0.99
    for norm in ("l2", "token"):
        found = certify(module, Everywhere(shape=(4, 6)), norm=norm, measure=False).bound
        assert found.upper[0] == 1.0
    assert bool((module(x).norm(dim=-1) <= x.norm(dim=-1) * (1 + 1e-12)).all())


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm_layers_are_short_as_well_as_slow(kind):
    """|x|/√(|x|²/d + ε) grows with |x|: what follows may count on the length of its inputs."""
    torch.manual_seed(0)
    layer = norm_layer(kind, 6)
    follow = nn.Sequential(layer, attention(width=6, heads=1))
    bounds = [bound_of(follow, radius, (3, 6)) for radius in (1e-3, 1.0, 6**0.5, 1e3, 1e120)]
    assert bounds == sorted(bounds)
    alone = bound_of(follow[1], 1 / 2**0.5 * 6**0.5, (3, 6))
    assert bounds[2] == pytest.approx(alone, rel=1e-9)  # tokens of root mean square 1
    assert bounds[4] == pytest.approx(bound_of(follow[1], 6**0.5, (3, 6)), rel=1e-9)
    x = torch.randn(1000, 3, 6, dtype=torch.float64)
    x = 6**0.5 * x / x.norm(dim=-1, keepdim=True)
    longest = float(layer(x).norm(dim=-1).max())
    assert longest <= 3**0.5 * (1 + 1e-12)
    assert longest > 0.95 * 3**0.5


@pytest.mark.parametrize("norm", [None, "centre"])
def test_bounds_are_propagated_through_averages(norm):
    """Near an input, by affine bounds; balls and sorted pairs by their constants."""
    torch.manual_seed(0)
    model = LipschitzTransformer.of_text(
        5, tokens=3, width=4, layers=1, heads=2, target=1.0, activation="relu", norm=norm
    ).double()
    x = 0.3 * torch.randn(1, 3, 4, dtype=torch.float64)
    found = propagate(model, At(x, 0.05)).bound
    for _ in range(200):
        step = torch.randn_like(x)
        step *= 0.05 / step.norm()
        y = model(inputs_embeds=x + step).detach().numpy()
        assert np.all(y <= found.upper.reshape(y.shape))
        assert np.all(y >= found.lower.reshape(y.shape))
