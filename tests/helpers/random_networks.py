"""Random small networks made of every operation that bounds are propagated through."""

from __future__ import annotations

import random

import torch
from torch import nn

import taut.networks as tt
from taut.networks.operations.normalisation import FixedNorm

ACTIVATIONS = [
    nn.ReLU, nn.GELU, lambda: nn.GELU("tanh"), nn.SiLU, nn.Tanh, nn.Sigmoid, nn.SELU, nn.ELU,
    nn.Mish, nn.Softplus, nn.LeakyReLU, nn.Hardswish, nn.Hardtanh, nn.Softsign, nn.Softshrink,
    nn.PReLU, lambda: nn.LeakyReLU(1.5), lambda: nn.LeakyReLU(-0.3), nn.Tanhshrink, nn.LogSigmoid,
    nn.ReLU6, lambda: nn.CELU(0.5), lambda: nn.ELU(0.5),
]  # fmt: skip


class OddAttention(nn.Module):
    """Attention with any of: shared heads, a soft cap, QK-norm, rotation, a mask, a bias."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        heads, self.size = random.choice([1, 2]), random.choice([2, 4])
        self.heads, self.kv_heads = heads, random.choice([1, heads])
        self.query = nn.Linear(width, heads * self.size)
        self.key = nn.Linear(width, self.kv_heads * self.size)
        self.value = nn.Linear(width, self.kv_heads * self.size)
        self.output = nn.Linear(heads * self.size, width)
        self.softcap = random.choice([None, None, 1.5])
        self.gain = nn.Parameter(torch.randn(self.size)) if random.random() < 0.3 else None
        self.causal = random.random() < 0.3
        self.bias = torch.randn(heads, tokens, tokens) if random.random() < 0.3 else None
        angle = torch.rand(tokens, self.size // 2, dtype=torch.float64) * 6
        turn = (torch.cat((angle.cos(),) * 2, -1), torch.cat((angle.sin(),) * 2, -1))
        self.rotary = turn if random.random() < 0.3 else None

    def forward(self, x):
        raise NotImplementedError  # what the rule records is compared with itself


class Gated(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int, act: nn.Module) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down, self.act = nn.Linear(2 * width, width), act

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class Rearranged(nn.Module):
    """Entries in other places, some twice and some left out, then BatchNorm of every entry."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.places = torch.randint(-1, tokens * width, (tokens, width))
        self.fixed = FixedNorm(*torch.randn(3, tokens, width, dtype=torch.float64))

    def forward(self, x):
        raise NotImplementedError


class Residuals(nn.Module):
    """Parts with residuals around them, then a choice of pooling."""

    def __init__(self, parts: list[nn.Module], pool: str | None) -> None:
        super().__init__()
        self.parts, self.pool = nn.ModuleList(parts), pool

    def forward(self, x):
        raise NotImplementedError


def _map(layer):
    return layer.weight, layer.bias


@tt.register(OddAttention)
def _odd_attention(run, module, x):
    norm = None if module.gain is None else tt.HeadNorm(module.gain, 1e-6)
    mask = torch.ones(x.tokens, x.tokens).tril().bool() if module.causal else None
    maps = [_map(each) for each in (module.query, module.key, module.value, module.output)]
    heads = tt.Heads(
        *maps, module.heads, module.kv_heads, module.size**-0.5, module.softcap, norm, norm
    )
    return run.attention(x, heads, mask=mask, bias=module.bias, rotary=module.rotary)


@tt.register(Gated)
def _gated(run, module, x):
    return run.gated(x, _map(module.gate), module.act, _map(module.up), _map(module.down))


@tt.register(Rearranged)
def _rearranged(run, module, x):
    return run.batch_norm(run.rearrange(x, module.places), module.fixed)


@tt.register(Residuals)
def _residuals(run, module, x):
    for index, part in enumerate(module.parts):
        y = run(part, x, str(index))
        x = run.add(x, y) if y.width == x.width and y.tokens == x.tokens else y
    if module.pool == "first":
        return run.first(x)
    if module.pool == "mean":
        return run.mean(x)
    return run.beside(run.first(x), run.mean(run.after(x, 1))) if module.pool == "both" else x


def random_network(seed: int):
    """A network in float64 with weights of odd sizes, and an input (1, tokens, width)."""
    random.seed(seed)
    torch.manual_seed(seed)
    width, tokens = random.choice([2, 4, 6]), random.choice([1, 2, 3, 5])
    parts: list[nn.Module] = []
    for _ in range(random.randint(1, 4)):
        act = random.choice(ACTIVATIONS)()
        parts.append(
            random.choice([
                lambda: OddAttention(width, tokens),
                lambda: nn.Linear(width, width),
                lambda: nn.LayerNorm(width),
                lambda: nn.RMSNorm(width, eps=1e-5),
                lambda act=act: Gated(width, act),
                lambda act=act: nn.Sequential(nn.Linear(width, 7), act, nn.Linear(7, width)),
                lambda act=act: act,
                lambda: Rearranged(width, tokens),
                lambda: nn.Softmax(dim=-1),  # has no affine bounds
            ])()
        )  # fmt: skip
    pools = [None, "first", "mean", "both" if tokens > 1 else None]
    net = Residuals(parts, random.choice(pools)).double().eval()
    gain = random.choice([0.3, 1, 1, 3, 10])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(gain)
    x = torch.randn(1, tokens, width, dtype=torch.float64) * random.choice([0, 0.1, 1, 1, 5])
    return net, x
