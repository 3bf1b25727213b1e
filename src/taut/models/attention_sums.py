"""Squared derivatives of a result in the scores, keys and values of attention, head by head.

With g the derivative in the outputs oᵢ = Σⱼ pᵢⱼ vⱼ of one head, the derivative in a score zᵢⱼ is
pᵢⱼ gᵢ·(vⱼ − oᵢ), in a key kⱼ it is factor · Σᵢ (that of zᵢⱼ) qᵢ, and in a value vⱼ it is Σᵢ pᵢⱼ gᵢ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from taut.models.attention_mode import FusedAttention
from taut.models.masks import HIDDEN

CELLS = 1 << 21  # scores of a block of queries, of all samples and heads


@dataclass
class AttentionGradient:
    """Sums over one attention of a pass, each (samples, heads); None is what could not be seen.

    Samples are those of the attention, which may be several for each sample of the model, such as
    windows of an image.

    Attributes
    ----------
    path, call
        The module, and which of its attentions, from 1 on.
    scores, keys, values
        Sum of the squared derivatives in all scores, in all coordinates of the keys, and in those
        of the values, as this head sees them.
    key_power, value_power
        Mean squared coordinate of the keys and of the values that count: some query that the result
        depends on sees them.
    reason
        Why something could not be seen.
    """

    path: str
    call: int
    scores: torch.Tensor | None = None
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None
    key_power: torch.Tensor | None = None
    value_power: torch.Tensor | None = None
    reason: str = ""


def add_fused(found: AttentionGradient, seen: FusedAttention, gradient: torch.Tensor) -> None:
    """Fill in the sums of a fused attention; ``gradient`` is that in its outputs.

    Weights are computed again in blocks of queries, so that no matrix of all scores is kept.
    """
    q, k, v = seen.query, seen.key, seen.value
    g = gradient.reshape(*q.shape[:3], v.shape[-1]).to(q.dtype)
    squares = torch.zeros(q.shape[:2], dtype=torch.float64, device=q.device)
    by_key, by_value = torch.zeros_like(k), torch.zeros_like(v)
    counted = torch.zeros(k.shape[:3], dtype=torch.bool, device=k.device)
    step = max(1, CELLS // max(1, k.shape[0] * k.shape[1] * k.shape[2]))
    for first in range(0, q.shape[2], step):
        block = slice(first, first + step)
        scores, slope = seen.scores(first, first + step), g[:, :, block]
        visible = scores > HIDDEN
        # A row that sees no key has no softmax; its output is not a function of the scores.
        weights = scores.softmax(dim=-1).masked_fill(~visible.any(dim=-1, keepdim=True), 0.0)
        along = slope @ v.transpose(-1, -2)
        by_score = weights * (along - (weights * along).sum(dim=-1, keepdim=True))
        squares += by_score.square().sum(dim=(-2, -1), dtype=torch.float64)
        by_key += seen.factor * by_score.transpose(-1, -2) @ q[:, :, block]
        by_value += weights.transpose(-1, -2) @ slope
        counted |= _counted(visible, slope)
    found.scores = squares
    found.keys, found.key_power = _squared(by_key), _power(k, counted)
    found.values, found.value_power = _squared(by_value), _power(v, counted)


def add_written(
    found: AttentionGradient,
    gradient: torch.Tensor,
    scores: tuple[torch.Tensor, torch.Tensor],
    keys: tuple[torch.Tensor, torch.Tensor] | None,
    values: tuple[torch.Tensor, torch.Tensor] | None,
) -> None:
    """Fill in the sums of an attention that is written out: pairs of a tensor and its derivative.

    All are (samples, heads, tokens, width), the scores (samples, heads, queries, keys);
    ``gradient`` is that in the outputs.
    """
    counted = _counted(scores[0] > HIDDEN, gradient)
    found.scores = _squared(scores[1])
    if keys is not None:
        found.keys, found.key_power = _squared(keys[1]), _power(keys[0], counted)
    if values is not None:
        found.values, found.value_power = _squared(values[1]), _power(values[0], counted)


def _counted(visible: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Which keys are seen by a query that the result depends on, (samples, heads, keys)."""
    matters = (slope != 0).any(dim=-1, keepdim=True)
    return (visible & matters).any(dim=-2)


def _squared(derivative: torch.Tensor) -> torch.Tensor:
    return derivative.square().sum(dim=(-2, -1), dtype=torch.float64)


def _power(tokens: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Mean squared coordinate of the tokens that count; 0 if none does."""
    size = tokens.square().mean(dim=-1, dtype=torch.float64)
    total = torch.where(counted, size, 0.0).sum(dim=-1)
    return total / counted.sum(dim=-1).clamp(min=1)
