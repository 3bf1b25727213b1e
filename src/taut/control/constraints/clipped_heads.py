"""The query and key maps of an attention module, scaled head by head for QKClip."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut.models import Block, LatentAttention, Weight


class ClippedMaps(NamedTuple):
    """Query and key maps, and which of their rows belong to which head.

    Attributes
    ----------
    weights
        The maps that are scaled.
    exponents
        For each map, the power of its head's factor that multiplies each row: 0 for rows that stay
        as they are.
    heads
        Number of heads.
    """

    weights: tuple[Weight, ...]
    exponents: tuple[torch.Tensor, ...]
    heads: int

    def scale(self, factors: torch.Tensor) -> None:
        """Multiply the scores of every head by its factor."""
        for weight, exponents in zip(self.weights, self.exponents, strict=True):
            rows = len(exponents) // self.heads
            powers = exponents.to(factors.device)
            weight.scale_rows(factors.repeat_interleave(rows) ** powers.to(factors.dtype))


def clipped_block(block: Block, alpha: float) -> ClippedMaps:
    """Queries take the share alpha of the exponent; all of it where heads share their keys."""
    query, key = block.weights["query"], block.weights["key"]
    rows, own = (len(weight.matrix()) for weight in (query, key))
    heads = block.heads or 1
    if rows != own:
        return ClippedMaps((query,), (torch.ones(rows),), heads)
    powers = (torch.full((rows,), share) for share in (alpha, 1 - alpha))
    return ClippedMaps((query, key), tuple(powers), heads)


def clipped_latent(found: LatentAttention, alpha: float) -> ClippedMaps:
    """Latent attention: the rotary key is shared, so that rotary queries take all of the factor.

    Rows of values stay as they are.
    """

    def each_head(first: float, many: int, second: float, more: int) -> torch.Tensor:
        return torch.tensor([*[first] * many, *[second] * more]).repeat(found.heads)

    query = each_head(alpha, found.plain, 1.0, found.rotary)
    key = each_head(1 - alpha, found.plain, 0.0, found.value)
    return ClippedMaps((found.query, found.key_value), (query, key), found.heads)
