"""Feed-forward networks that are written as nn.Sequential(Linear, activation, Linear)."""

from __future__ import annotations

from typing import Any

from torch import nn

from taut.models.architectures.description import FeedForwardDescription
from taut.models.architectures.found_maps import FeedForwardMaps, feed_forward_maps

_NOTHING = (nn.Dropout, nn.Identity)  # in evaluation mode
_ACTIVATIONS = ("torch.nn.modules.activation", "transformers.activations")


def sequential_maps(module: Any) -> FeedForwardMaps | None:
    """The maps of a Sequential that is a feed-forward network; None if it is none.

    It holds a linear map, an activation and a linear map back to the width of the first, and
    dropout anywhere.
    """
    if type(module) is not nn.Sequential:
        return None
    parts = {n: m for n, m in module.named_children() if not isinstance(m, _NOTHING)}
    if len(parts) != 3:
        return None
    (one, first), (two, activation), (three, second) = parts.items()
    if not (isinstance(first, nn.Linear) and isinstance(second, nn.Linear)):
        return None
    if type(activation).__module__ not in _ACTIVATIONS or first.in_features != second.out_features:
        return None
    return feed_forward_maps(FeedForwardDescription(one, three, activation=two), module)
