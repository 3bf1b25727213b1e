"""A small decoder of characters whose attention can lose its precision during a training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class WatchedAttention(nn.Module):
    """Causal attention, which ``bits`` that are not None make imprecise.

    So many bits of the mantissa are then kept of all that it computes, and of gradients; and the
    sums over rows in the gradient of softmax are lost, as in a format in which such small numbers
    are zero. Without them gradients of scores no longer add up to zero, and scores drift.
    ``scores`` are those of the last pass, -inf where they are masked.
    """

    scores: Tensor
    hidden: Tensor
    bits: int | None

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.heads, self.bits = heads, None
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, tokens, width)."""
        q, k, v = (
            each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        q, k, v = (cut(each, self.bits) for each in (q, k, v))
        scores = cut(q @ k.mT * q.shape[-1] ** -0.5, self.bits)
        scores = scores.masked_fill(self.hidden, -torch.inf)
        self.scores = scores.detach()
        weights = cut(scores.softmax(-1) if self.bits is None else lossy(scores), self.bits)
        mixed: Tensor = self.output(cut(weights @ v, self.bits).transpose(1, 2).flatten(2))
        return mixed


class WatchedDecoder(nn.Module):
    """Embeddings, blocks with the norm before each part, and a linear map to logits.

    Parameters
    ----------
    words
        How many characters there are.
    tokens, width, layers, heads
        Sizes. Queries and keys are not normed.
    """

    def __init__(self, words: int, *, tokens: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.positions = nn.Parameter(torch.zeros(tokens, width))
        self.blocks: Any = nn.ModuleList(
            nn.ModuleDict({
                "attention_norm": nn.LayerNorm(width),
                "attention": WatchedAttention(width, heads, tokens),
                "mlp_norm": nn.LayerNorm(width),
                "mlp": nn.Sequential(
                    nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
                ),
            })
            for _ in range(layers)
        )  # fmt: skip
        self.last_norm, self.output = nn.LayerNorm(width), nn.Linear(width, words)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if "embedding" in name else width**-0.5 / 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of characters (batch, tokens)."""
        x = self.embedding(ids) + self.positions
        for block in self.blocks:
            x = x + block["attention"](block["attention_norm"](x))
            x = x + block["mlp"](block["mlp_norm"](x))
        logits: Tensor = self.output(self.last_norm(x))
        return logits


def cut(x: Tensor, bits: int | None) -> Tensor:
    """A number with so many bits of its mantissa, rounded towards zero; its gradient too."""
    if bits is None:
        return x
    short: Tensor = _Cut.apply(x, bits)  # type: ignore[no-untyped-call]
    return short


def lossy(scores: Tensor) -> Tensor:
    """Softmax whose gradient lacks the sums over rows."""
    weights: Tensor = _LossySoftmax.apply(scores)  # type: ignore[no-untyped-call]
    return weights


class _Cut(torch.autograd.Function):
    """Rounding towards zero, as a cheap multiplier does it: the error has a direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: int) -> Tensor:
        ctx.bits = bits
        return _truncated(x, bits)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _truncated(gradient, ctx.bits), None


class _LossySoftmax(torch.autograd.Function):
    """Softmax whose gradient is s∘g where s∘(g − ⟨s, g⟩) is right."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        weights = scores.softmax(-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        lost: Tensor = weights * gradient
        return lost


def _truncated(x: Tensor, bits: int) -> Tensor:
    kept = -(1 << (23 - bits))  # sign, exponent and the first bits of the mantissa of float32
    return (x.contiguous().view(torch.int32) & kept).view(torch.float32)
