"""The transformer of Newhouse et al. 2025, and their formula of its bound.

Facts are from the paper (arXiv 2507.13338, section 4 and appendix) and from the configuration that
its authors publish for Shakespeare's characters; the code is taut's own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taut.networks import Heads, Interpreter, Region, register

SLOPE = 1.1289  # by which they divide GELU


class NewhouseBlock(nn.Module):
    """Attention with rotary positions and a third of its output, then a feed-forward network."""

    def __init__(self, width: int, heads: int, share: float) -> None:
        super().__init__()
        self.heads, self.share = heads, share
        self.query, self.key, self.value, self.output = (
            nn.Parameter(torch.empty(width, width)) for _ in range(4)
        )
        self.first = nn.Parameter(torch.empty(4 * width, width))
        self.second = nn.Parameter(torch.empty(width, 4 * width))
        for weight in (self.query, self.key, self.value):
            nn.init.orthogonal_(weight)
        nn.init.orthogonal_(self.first, gain=2.0)
        for weight in (self.output, self.second):  # they begin with zeros
            nn.init.zeros_(weight)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Tokens (batch, tokens, width)."""
        q, k, v = (
            nn.functional.linear(x, w).reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for w in (self.query, self.key, self.value)
        )
        q, k = (_turned(part, rotary) for part in (q, k))
        seen = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=1 / q.shape[-1]
        )
        seen = nn.functional.linear(seen.transpose(1, 2).flatten(2), self.output) / 3
        x = (1 - self.share) * x + self.share * seen
        hidden = nn.functional.gelu(nn.functional.linear(x, self.first)) / SLOPE
        return (1 - self.share) * x + self.share * nn.functional.linear(hidden, self.second)


class NewhouseTransformer(nn.Module):
    """Embeddings of root mean square at most 1, blocks, and a linear map to logits."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, words: int, *, tokens: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.width = tokens, width
        rows = nn.functional.normalize(torch.randn(words, width)) * width**0.5
        self.embedding = nn.Parameter(rows)
        share = 1 / (2 * layers)
        self.blocks: Any = nn.ModuleList(NewhouseBlock(width, heads, share) for _ in range(layers))
        self.output = nn.Parameter(torch.zeros(words, width))
        cosine, sine = _angles(tokens, width // heads)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, ids: Tensor | None = None, *, inputs_embeds: Tensor | None = None) -> Tensor:
        """Logits of words (batch, tokens)."""
        x = inputs_embeds
        if x is None:
            assert ids is not None
            x = nn.functional.embedding(ids, self.embedding)
        rotary = (self.cosine[: x.shape[1]], self.sine[: x.shape[1]])
        for block in self.blocks:
            x = block(x, rotary)
        return nn.functional.linear(x, self.output)


def limits(model: NewhouseTransformer, most: float) -> list[tuple[nn.Parameter, float]]:
    """All maps, limited to ``most`` between root mean squares."""
    maps = [
        getattr(block, name)
        for block in model.blocks
        for name in ("query", "key", "value", "output", "first", "second")
    ]
    return [(w, most * math.sqrt(w.shape[0] / w.shape[1])) for w in [*maps, model.output]]


def their_bound(model: NewhouseTransformer) -> float:
    """Their formula, at the weights of a model."""
    norms = [
        {n: _rms(getattr(block, n)) for n in ("query", "key", "value", "output", "first", "second")}
        for block in model.blocks
    ]
    return _formula(norms, _rms(model.output))


def _formula(norms: list[dict[str, float]], output: float) -> float:
    """The largest token is followed, then constants are multiplied.

    Heads are not told apart: |q| ≤ ‖Wq‖|x| counts as if it were spread evenly over them.
    """
    share, reach, bound = 1 / (2 * len(norms)), 1.0, 1.0
    for n in norms:
        passed = n["output"] * n["value"] / 3
        attention = passed * (1 + 2 * reach**2 * n["query"] * n["key"])
        mlp = n["second"] * n["first"] / SLOPE
        bound *= ((1 - share) + share * attention) * ((1 - share) + share * mlp)
        reach *= ((1 - share) + share * passed) * ((1 - share) + share * mlp)
    return bound * output


def limit_for(target: float, layers: int) -> float:
    """The limit of all weights at which their formula gives a target."""
    names = ("query", "key", "value", "output", "first", "second")

    low, high = 0.0, 50.0
    for _ in range(80):  # the formula grows with the limit
        most = (low + high) / 2
        small = _formula([dict.fromkeys(names, most)] * layers, most) <= target
        low, high = (most, high) if small else (low, most)
    return low


def _rms(weight: Tensor) -> float:
    rows, columns = weight.shape
    norm = np.linalg.norm(weight.detach().double().cpu().numpy(), 2)
    return float(norm) * math.sqrt(columns / rows)


def _angles(tokens: int, width: int) -> tuple[Tensor, Tensor]:
    half = torch.arange(width // 2) / (width // 2)
    angles = torch.outer(torch.arange(tokens), 10000.0**-half)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def _turned(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return (x * rotary[0] + torch.cat((-right, left), dim=-1) * rotary[1]).to(x.dtype)


def _call(module: NewhouseTransformer, x: Any) -> Any:
    return module(inputs_embeds=x)


@register(NewhouseTransformer, call=_call)
def _rule(run: Interpreter, module: NewhouseTransformer, x: Region) -> Region:
    run.explain("chain", "chain", "averaged-mlp")
    rotary = (module.cosine[: x.tokens], module.sine[: x.tokens])
    mask = torch.ones(x.tokens, x.tokens, dtype=torch.bool).tril()
    for index, block in enumerate(module.blocks):
        q, k, v, o = ((w, None) for w in (block.query, block.key, block.value, block.output))
        heads = Heads(q, k, v, o, block.heads, block.heads, block.heads / module.width)
        y = run.attention(x, heads, mask=mask, rotary=rotary, name=f"blocks.{index}.attention")
        x = run.average(x, y, 1 - block.share, block.share / 3)
        first, second = (block.first, None), (block.second, None)
        kept, passed = 1 - block.share, block.share / SLOPE
        x = run.averaged_mlp(x, first, nn.GELU(), second, kept, passed, f"blocks.{index}.mlp")
    return run.linear(x, module.output, None, "output")
