"""Disturb one head of a fused attention for real: noise on its scores, its keys or its values."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.models.attention_calls import split_heads
from taut.models.attention_mode import AttentionMode, FusedAttention, fused_arguments
from taut.models.masks import HIDDEN

DISTURBED = ("scores", "keys", "values")


class DisturbedAttention(AttentionMode):
    """Mode that adds independent normal noise in one head and leaves all others alone.

    Parameters
    ----------
    model
        The model whose passes it sees.
    place
        The module, and which of its attentions, from 1 on.
    head
        The query head. Keys and values that it shares with others are disturbed in its view only.
    kind
        What is disturbed: ``"scores"``, ``"keys"`` or ``"values"``.
    size
        Standard deviation of the noise; of keys and values relative to their root mean square.
    generator
        Where the noise comes from.
    real
        Which tokens are not padding, (samples, tokens); the keys that they see make the root mean
        square.
    """

    def __init__(
        self,
        model: nn.Module,
        place: tuple[str, int],
        head: int,
        kind: str,
        size: float,
        generator: torch.Generator,
        real: torch.Tensor | None = None,
    ) -> None:
        super().__init__(model)
        if kind not in DISTURBED:
            raise ValueError(f"kind must be one of {', '.join(DISTURBED)}, got {kind!r}")
        self.target, self.head, self.kind, self.size = place, head, kind, size
        self.generator, self.real = generator, real
        self.met = False

    def fused(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a fused attention; in the place that is asked for, one head anew and disturbed."""
        result = function(*args, **kwargs)
        if self.place() != self.target:
            return result
        self.met = True
        seen = fused_arguments(self.heads, args, kwargs)
        if not 0 <= self.head < seen.query.shape[1]:
            raise ValueError(f"{self.target[0]} has no head {self.head}")
        changed = result.clone(memory_format=torch.contiguous_format)
        outputs = split_heads(changed, self.heads)
        outputs[:, self.head] = self._disturbed(_one_head(seen, self.head))[:, 0].to(result.dtype)
        return changed

    def _disturbed(self, seen: FusedAttention) -> torch.Tensor:
        tokens = seen.query.shape[2]
        if self.kind == "scores":
            scores = seen.scores(0, tokens)
            return (scores + self.size * self._noise(scores)).softmax(dim=-1) @ seen.value
        counted = self._counted(seen.scores(0, tokens) > HIDDEN)
        if self.kind == "keys":
            seen = seen._replace(key=self._shaken(seen.key, counted))
        else:
            seen = seen._replace(value=self._shaken(seen.value, counted))
        return seen.scores(0, tokens).softmax(dim=-1) @ seen.value

    def _counted(self, visible: torch.Tensor) -> torch.Tensor:
        if self.real is not None and self.real.shape[1] == visible.shape[2]:
            visible = visible & self.real[:, None, :, None].to(visible.device)
        return visible.any(dim=2)

    def _shaken(self, tokens: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        power = torch.where(counted, tokens.square().mean(dim=-1), 0.0).sum(dim=-1)
        width = self.size * (power / counted.sum(dim=-1).clamp(min=1)).sqrt()
        return tokens + width[..., None, None] * self._noise(tokens)

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        drawn = torch.randn(like.shape, generator=self.generator, dtype=torch.float32)
        return drawn.to(like.device, like.dtype)


def _one_head(seen: FusedAttention, head: int) -> FusedAttention:
    one = slice(head, head + 1)
    bias = seen.bias
    if bias is not None and bias.shape[1] > 1:
        bias = bias[:, one]
    return seen._replace(
        query=seen.query[:, one], key=seen.key[:, one], value=seen.value[:, one], bias=bias
    )
