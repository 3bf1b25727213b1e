"""Norm layers that a Lipschitz transformer may use, each 1-Lipschitz on all tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

NormKind = Literal["centre", "rms", "layer"]
EPSILON = 1.0  # of norm layers: their constant is 1/√ε, at tokens that are zero


class Centring(nn.Module):
    """Every token less the mean of its entries."""

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, tokens, width)."""
        return x - x.mean(dim=-1, keepdim=True)


_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "centre": lambda width: Centring(),
    "rms": lambda width: nn.RMSNorm(width, eps=EPSILON, elementwise_affine=False),
    "layer": lambda width: nn.LayerNorm(width, eps=EPSILON, elementwise_affine=False),
}


def norm_layer(kind: NormKind | None, width: int) -> nn.Module:
    """A norm layer without weights; the identity if there is none."""
    if kind is None:
        return nn.Identity()
    if kind not in _NORMS:
        raise ValueError(f"norm must be None or one of {', '.join(_NORMS)}, got {kind!r}")
    return _NORMS[kind](width)


def longest_after(kind: NormKind | None, reach: float, width: int) -> float:
    """Length of the longest token after a norm layer, of tokens of length at most ``reach``."""
    if kind in ("rms", "layer"):
        return reach / math.sqrt(reach**2 / width + EPSILON)
    return reach
