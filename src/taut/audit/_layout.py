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
        if shape[0] == samples:  # heads are taken one after the other
            count = 1
        elif count is None or shape[0] % count:
            count = shape[0] // samples if shape[0] % samples == 0 else 1
        scores, weights = (t.reshape(-1, count, *shape[1:]) for t in (scores, weights))
    elif scores.ndim == 2:
        scores, weights = scores[None, None], weights[None, None]
    elif scores.ndim == 5:  # (samples, windows, heads, ...), or (samples, groups, heads, ...)
        grouped = shape[0] == samples and shape[1] * shape[2] == heads
        scores, weights = (
            t.flatten(1, 2) if grouped else t.flatten(0, 1) for t in (scores, weights)
        )
    else:
        raise ValueError(f"scores of shape {tuple(shape)} have no known layout")
    count = len(scores)
    return Rows(scores, weights, count // samples if count % samples == 0 else 1)


_FIRST = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values")


def batch_size(inputs: Any, model: nn.Module) -> int:
    """Samples of a batch: the first length of what is read, or the second, if tokens come first."""
    if isinstance(inputs, dict):
        named = [inputs[name] for name in _FIRST if name in inputs]
        values = [*named, *inputs.values()]
    else:
        values = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    for value in values:
        if isinstance(value, torch.Tensor) and value.ndim:
            return value.shape[1] if value.ndim == 3 and _tokens_first(model) else len(value)
    raise ValueError("a batch must hold a tensor")


def _tokens_first(model: nn.Module) -> bool:
    """Whether all attention is torch's own, with the tokens before the samples."""
    found = [m.batch_first for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    return bool(found) and not any(found)
