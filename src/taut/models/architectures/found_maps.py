"""The maps of one attention or feed-forward module, found where its architecture keeps them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import nn

from taut.models.architectures.description import (
    ROLES,
    AttentionDescription,
    FeedForwardDescription,
)
from taut.models.architectures.linear_map import LinearMap, at_path, linear_map

WHOLE = "query-key-value"  # the role of a fused map whose order is not known


class AttentionMaps(NamedTuple):
    """The linear maps of an attention module by role, and its description.

    Roles are query, key, value and output; query-key-value where they are fused in an order that
    is not known.
    """

    module: Any
    description: AttentionDescription
    maps: dict[str, LinearMap]

    @property
    def heads(self) -> int:
        """The number of heads."""
        return int(at_path(self.module, self.description.heads))

    @property
    def key_heads(self) -> int:
        """The number of heads with keys and values of their own."""
        groups = self.description.groups
        return self.heads // int(at_path(self.module, groups)) if groups else self.heads

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        if self.description.scale:
            return float(at_path(self.module, self.description.scale))
        return 1 / math.sqrt(self.maps["query"].weight.shape[0] // self.heads)

    @property
    def norms(self) -> tuple[nn.Module | None, nn.Module | None]:
        """RMSNorms of the queries and keys of each head."""
        names = (self.description.query_norm, self.description.key_norm)
        query, key = (at_path(self.module, name) if name else None for name in names)
        return query, key


class FeedForwardMaps(NamedTuple):
    """The linear maps of a feed-forward module by role: first, second, and maybe gate."""

    module: Any
    description: FeedForwardDescription
    maps: dict[str, LinearMap]

    @property
    def activation(self) -> Any:
        """What is between the maps."""
        return at_path(self.module, self.description.activation)


def attention_maps(
    description: AttentionDescription, module: Any, parent: Any = None
) -> AttentionMaps | None:
    """The maps that a description names, or None if they are not all there."""
    inputs = input_maps(description, module)
    output = linear_map(at_path(module, description.output, parent))
    if inputs is None or output is None:
        return None
    return AttentionMaps(module, description, {**inputs, "output": output})


def input_maps(description: AttentionDescription, module: Any) -> dict[str, LinearMap] | None:
    """The maps of queries, keys and values by role, or None if they are not all there."""
    bias = at_path(module, description.bias) if description.bias else None
    names = {role: getattr(description, role) for role in ROLES}
    named = {
        role: found
        for role, name in names.items()
        if name and (found := linear_map(at_path(module, name), bias)) is not None
    }
    if description.fused:
        whole = linear_map(at_path(module, description.fused), bias)
        if whole is None:
            return None
        named |= _split(whole, description, queries_apart="query" in named)
        if whole.module is None and WHOLE in named:  # a bare matrix of another size
            return None
    elif len(named) < len(ROLES):
        return None
    elif bias is not None:
        named = _own_biases(named)
    return {role: named[role] for role in (*ROLES, WHOLE) if role in named}


def _split(
    whole: LinearMap, description: AttentionDescription, *, queries_apart: bool
) -> dict[str, LinearMap]:
    """The parts of a fused map, told by its size; all of it if no order fits."""
    rows, width = whole.weight.shape
    for order in description.orders:
        if rows == width * len(order) and ("query" in order or queries_apart):
            places = ((i * width, (i + 1) * width) for i in range(len(order)))
            return {
                role: whole._replace(rows=place) for role, place in zip(order, places, strict=True)
            }
    return {WHOLE: whole}


def _own_biases(named: dict[str, LinearMap]) -> dict[str, LinearMap]:
    """Biases of all three are kept in one, each as wide as the queries."""
    width = named["query"].kept_weight.shape[0]
    return {
        role: named[role]._replace(bias_rows=(i * width, (i + 1) * width))
        for i, role in enumerate(ROLES)
    }


def feed_forward_maps(description: FeedForwardDescription, module: Any) -> FeedForwardMaps | None:
    """The maps that a description names, or None if they are not all there."""
    names = {role: getattr(description, role) for role in ("gate", "first", "second")}
    found = {role: linear_map(at_path(module, name)) for role, name in names.items() if name}
    maps = {role: each for role, each in found.items() if each is not None and each.module}
    if len(maps) < len(found):
        return None
    return FeedForwardMaps(module, description, maps)
