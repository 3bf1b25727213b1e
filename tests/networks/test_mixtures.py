"""Mixtures of experts: bounded where the routing cannot change, refused where it does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from taut import At, Ball, Everywhere
from taut.networks import certify, propagate, register

transformers = pytest.importorskip("transformers")
WIDTH, TOKENS, EXPERTS = 6, 3, 4
FOLDERS = {"Mixtral": "mixtral", "Qwen2Moe": "qwen2_moe", "Qwen3Moe": "qwen3_moe", "Olmoe": "olmoe"}


def settings(name: str, top: int = 2, **options):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=11, hidden_size=WIDTH, intermediate_size=8, moe_intermediate_size=8,
        shared_expert_intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, num_experts_per_tok=top, num_local_experts=EXPERTS,
        num_experts=EXPERTS, max_position_embeddings=16, eos_token_id=1, pad_token_id=0, **options,
    )  # fmt: skip
    config._experts_implementation = "eager"  # the others do not run in double precision
    return config


def block(name: str, seed: int = 0, **options) -> nn.Module:
    """One mixture with weights of size 1, in double precision."""
    torch.manual_seed(seed)
    module = getattr(transformers.models, FOLDERS[name])
    kind = getattr(getattr(module, f"modeling_{FOLDERS[name]}"), f"{name}SparseMoeBlock")
    found = kind(settings(name, **options)).double().eval()
    with torch.no_grad():
        for weight in found.parameters():
            weight.copy_(torch.randn_like(weight) / weight.shape[-1] ** 0.5)
    return found


def steepest(module: nn.Module, x: torch.Tensor) -> float:
    """The largest norm of the derivative at a token: tokens do not see each other."""
    jacobian = torch.autograd.functional.jacobian(lambda t: module(t[None])[0], x)
    own = torch.stack([jacobian[t, :, t] for t in range(len(x))])
    assert float(jacobian.abs().sum()) == pytest.approx(float(own.abs().sum()))
    return float(torch.linalg.matrix_norm(own, 2).max())


@pytest.mark.theorem("mixture", "holds")
@pytest.mark.theorem("mixture", "derivative")
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_a_mixture_holds_near_inputs(name, seed):
    module = block(name, seed)
    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    for norm in ("l2", "token"):
        here = float(certify(module, x, norm=norm, measure=False).bound.upper[0])
        assert 0.02 * here < steepest(module, x[0]) <= here * (1 + 1e-6)  # weights are in float32
        radius = 1e-3
        near = float(certify(module, At(x, radius), norm=norm, measure=False).bound.upper[0])
        assert here <= near < np.inf
        for _ in range(5):
            step = torch.randn_like(x)
            step *= radius / step.norm()
            assert steepest(module, (x + step)[0]) <= near * (1 + 1e-6)


def test_the_routing_is_fixed_exactly_as_far_as_the_gap_says():
    module = block("Mixtral")
    x = torch.randn(1, 1, WIDTH, dtype=torch.float64)
    rows = module.gate.weight.detach()
    logits = rows @ x[0, 0]
    order = logits.argsort(descending=True)
    between = [(a, b) for a in order[:2] for b in order[2:]]
    reach = min(
        (float((logits[a] - logits[b]) / (rows[a] - rows[b]).norm()), a, b) for a, b in between
    )
    radius, a, b = reach
    for norm in ("l2", "token"):
        inside = certify(module, At(x, 0.999 * radius), norm=norm, measure=False)
        assert np.isfinite(inside.bound.upper[0])
        outside = certify(module, At(x, 1.001 * radius), norm=norm, measure=False)
        assert np.isinf(outside.bound.upper[0])
        assert "routing may change" in str(outside.tree)
    step = (rows[b] - rows[a]) / (rows[b] - rows[a]).norm()
    chosen = [set(module.gate((x[0] + f * radius * step).float().double())[2][0].tolist())
              for f in (0.0, 0.999, 1.001)]  # fmt: skip
    assert chosen[0] == chosen[1] != chosen[2]
    jump = (module(x + 1.001 * radius * step) - module(x + 0.999 * radius * step)).norm()
    assert float(jump.detach()) > 10 * 0.002 * radius  # steeper than anything near it


@pytest.mark.parametrize("size", [1.0, 1e-4, 300.0])
def test_the_routing_is_fixed_as_executed_in_single_precision(size):
    """Routers compare weights in float32, where gaps below 1e-7 are rounded away."""
    module = block("Mixtral")
    torch.manual_seed(0)
    x = size * torch.randn(1, 1, WIDTH, dtype=torch.float64)
    rows = module.gate.weight.detach()
    logits = rows @ x[0, 0]
    order = logits.argsort(descending=True)
    radius, a, b = min(
        (float((logits[a] - logits[b]) / (rows[a] - rows[b]).norm()), int(a), int(b))
        for a in order[:2] for b in order[2:]
    )  # fmt: skip
    step = (rows[b] - rows[a]) / (rows[b] - rows[a]).norm()
    for short in (1e-9, 1e-8, 1e-7, 1e-6):
        near = (1 - short) * radius
        found = certify(module, At(x, near), norm="token", measure=False).bound.upper[0]
        executed = set(module.gate(x[0] + (1 - 1e-10) * near * step)[2][0].tolist())
        assert np.isinf(found) or executed == set(order[:2].tolist())


def test_weights_that_are_rounded_to_zero_choose_nothing():
    """Of logits far below the largest, float32 cannot tell which is larger."""
    module = block("Mixtral")
    x = torch.ones(1, 1, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        module.gate.weight.copy_(torch.tensor([-202.0, -200.0, -204.0, 0.0])[:, None] / WIDTH)
    executed = set(module.gate(x[0])[2][0].tolist())
    assert executed != {1, 3}
    assert np.isinf(certify(module, x, norm="token", measure=False).bound.upper[0])


@pytest.mark.parametrize("domain", [Everywhere((TOKENS, WIDTH)), Ball(1.0, shape=(TOKENS, WIDTH))])
def test_all_inputs_are_refused_where_the_map_jumps(domain):
    with pytest.raises(ValueError, match=r"best 2 of its 4 experts and jumps.*taut\.At"):
        certify(block("Mixtral"), domain, measure=False)


def test_soft_routing_has_a_constant_on_all_inputs_of_bounded_length():
    module = block("Qwen3Moe", top=EXPERTS)
    bound = certify(module, Ball(2.0, shape=(TOKENS, WIDTH)), norm="token", measure=False).bound
    assert np.isfinite(bound.upper[0])
    torch.manual_seed(1)
    worst = 0.0
    for _ in range(30):
        x = torch.randn(TOKENS, WIDTH, dtype=torch.float64)
        worst = max(worst, steepest(module, 2.0 * x / x.norm(dim=1, keepdim=True)))
    assert 0.01 * bound.upper[0] < worst <= bound.upper[0]


class Opposite(nn.Module):
    """Two constant experts of opposite outputs, weighed by a router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Parameter(torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64))
        self.shift = nn.Parameter(torch.tensor([3.0, -4.0], dtype=torch.float64))

    def forward(self, x):
        weights = (x @ self.router.mT).softmax(dim=-1)
        return (weights[..., :1] - weights[..., 1:]) * self.shift


@register(Opposite)
def _opposite(run, module, x):
    def expert(tokens, index):
        return run.linear(tokens, torch.zeros(2, 2), (1 - 2 * index) * module.shift, str(index))

    return run.mixture(x, module.router, expert, top=2)


@pytest.mark.theorem("mixture", "attained")
@pytest.mark.theorem("mixture", "falsifiable")
def test_opposite_experts_attain_the_bound():
    module = Opposite()
    bound = certify(module, Everywhere((1, 2)), measure=False).bound.upper[0]
    exact = 0.5 * 5.0 * float((module.router[0] - module.router[1]).norm().detach())
    assert bound == pytest.approx(exact, rel=1e-9)
    found = steepest(module, torch.zeros(1, 2, dtype=torch.float64))
    assert 0.999 * bound < found <= bound


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2Moe", "Qwen3Moe"])
def test_whole_models_are_certified(name):
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(settings(name)).double().eval()
    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    bound = certify(model, x, measure=False).bound
    jacobian = torch.autograd.functional.jacobian(
        lambda t: model(inputs_embeds=t).last_hidden_state, x
    )
    exact = torch.linalg.matrix_norm(jacobian.reshape(TOKENS * WIDTH, -1), 2)
    assert 0.3 * bound.upper[0] < float(exact) <= bound.upper[0] * (1 + 1e-6)


def test_bounds_are_propagated_through_a_mixture_by_its_constant():
    module = block("Mixtral")
    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    found = propagate(module, At(x, 1e-3)).bound
    for _ in range(50):
        step = torch.randn_like(x)
        y = module(x + 1e-3 * step / step.norm()).detach().numpy().reshape(found.upper.shape)
        assert np.all(y <= found.upper + 1e-6)
        assert np.all(y >= found.lower - 1e-6)
