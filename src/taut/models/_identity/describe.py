"""A model for people: name, class, size, type, and the digest of its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def describe_model(model: nn.Module, name: str, identity: dict[str, Any]) -> dict[str, Any]:
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
