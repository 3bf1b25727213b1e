"""A model as a whole: how it is called, its logits, and what identifies it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def call(model: nn.Module, inputs: Any) -> Any:
    """The model on a batch: keyword arguments, a tuple, or one tensor."""
    if isinstance(inputs, torch.Tensor):
        return model(inputs)
    if isinstance(inputs, Mapping) and _takes_features(model):
        return model(dict(inputs))
    return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)


def _takes_features(model: nn.Module) -> bool:
    """Whether a model is one of Sentence Transformers, which take one dict of all features."""
    kinds = type(getattr(model, "_orig_mod", model)).__mro__
    return any(kind.__module__.startswith("sentence_transformers.") for kind in kinds)


def logits_of(output: Any) -> torch.Tensor:
    """The logits in what a model gives out."""
    found = getattr(output, "logits", output)
    if isinstance(found, (tuple, list)) and found:
        found = found[0]
    if not isinstance(found, torch.Tensor) or found.ndim < 2 or not found.is_floating_point():
        raise ValueError(
            "this model gives out no logits: it returns no tensor (samples, ..., classes) and "
            "nothing called logits"
        )
    return found


def describe(model: nn.Module, name: str, identity: dict[str, Any]) -> dict[str, Any]:
    """A model for people: name, class, size, type, and the digest of its weights."""
    state = [value for value in model.state_dict().values() if isinstance(value, torch.Tensor)]
    first = next(model.parameters(), torch.zeros(0))
    return {
        "name": name or type(model).__name__,
        "class": type(model).__name__,
        "parameters": sum(value.numel() for value in state),
        "dtype": str(first.dtype).removeprefix("torch."),
        "weights": identity["weights"],
        "revision": getattr(getattr(model, "config", None), "_commit_hash", None),
    }
