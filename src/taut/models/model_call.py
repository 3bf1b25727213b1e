"""How a model is called on a batch, and where its logits are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def call_model(model: nn.Module, inputs: Any) -> Any:
    """Call a model on a batch: keyword arguments, a tuple, or one tensor."""
    if isinstance(inputs, torch.Tensor):
        return model(inputs)
    if isinstance(inputs, Mapping) and _takes_features(model):
        return model(dict(inputs))
    return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)


def _takes_features(model: nn.Module) -> bool:
    """Whether a model is from Sentence Transformers, whose models take one dict of features."""
    kinds = type(getattr(model, "_orig_mod", model)).__mro__
    return any(kind.__module__.startswith("sentence_transformers.") for kind in kinds)


def logits_of(output: Any) -> torch.Tensor:
    """The logits in the output of a model."""
    found = getattr(output, "logits", output)
    if isinstance(found, (tuple, list)) and found:
        found = found[0]
    if not isinstance(found, torch.Tensor) or found.ndim < 2 or not found.is_floating_point():
        raise ValueError(
            "this model gives out no logits: it returns no tensor (samples, ..., classes) and "
            "nothing called logits"
        )
    return found
