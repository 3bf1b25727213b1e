"""From the layout a model happens to use to (sample, head, query, key)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

_NAMES = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")


class Rows(NamedTuple):
    """Scores and weights as (samples, heads, queries, keys).

    Where a model cuts its input into windows, the windows of a sample follow each other among the
    samples: ``windows`` says how many there are.
    """

    scores: torch.Tensor
    weights: torch.Tensor
    windows: int


def heads_of(module: nn.Module | None) -> int | None:
    """How many heads a module says it has."""
    for source in (module, getattr(module, "config", None)):
        for name in _NAMES:
            count = getattr(source, name, None)
            if isinstance(count, int) and count > 0:
                return count
    return None


def arranged(scores: torch.Tensor, weights: torch.Tensor, heads: int | None, samples: int) -> Rows:
    """Bring scores and weights of any layout into one, or say that it is not known."""
    shape = scores.shape
    if scores.ndim == 4:
        if shape[1] != heads and shape[2] == heads:  # (samples, queries, heads, keys)
            scores, weights = scores.transpose(1, 2), weights.transpose(1, 2)
    elif scores.ndim == 3:
        count = heads
        if count is None or shape[0] % count:
            count = shape[0] // samples if shape[0] % samples == 0 else 1
        scores, weights = (t.reshape(-1, count, *shape[1:]) for t in (scores, weights))
    elif scores.ndim == 2:
        scores, weights = scores[None, None], weights[None, None]
    elif scores.ndim == 5:  # (samples, windows, heads, queries, keys)
        scores, weights = scores.flatten(0, 1), weights.flatten(0, 1)
    else:
        raise ValueError(f"scores of shape {tuple(shape)} have no known layout")
    count = len(scores)
    return Rows(scores, weights, count // samples if count % samples == 0 else 1)


def batch_size(inputs: Any) -> int:
    """Samples of a batch: the first length of the first tensor in it."""
    if isinstance(inputs, torch.Tensor):
        return len(inputs)
    values = inputs.values() if isinstance(inputs, dict) else inputs
    for value in values:
        if isinstance(value, torch.Tensor) and value.ndim:
            return len(value)
    raise ValueError("a batch must hold a tensor")
