"""Find the description of a module: by its class, or else by the names of its maps.

A new architecture is one file beside this one, and its name in ``ARCHITECTURES``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import nn

from taut.models.architectures import usual_names
from taut.models.architectures.bart import BART
from taut.models.architectures.bert import BERT
from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    FeedForwardDescription,
    LayerDescription,
    RmsNormDescription,
)
from taut.models.architectures.dinov2 import DINOV2
from taut.models.architectures.found_maps import (
    AttentionMaps,
    FeedForwardMaps,
    attention_maps,
    feed_forward_maps,
    input_maps,
)
from taut.models.architectures.gpt2 import GPT2
from taut.models.architectures.linear_map import LinearMap, at_path
from taut.models.architectures.llama import LLAMA
from taut.models.architectures.t5 import T5
from taut.models.architectures.torch_nn import TORCH_NN
from taut.models.architectures.vit import VIT

ARCHITECTURES: tuple[Architecture, ...] = (TORCH_NN, BERT, GPT2, LLAMA, T5, BART, VIT, DINOV2)

Description = TypeVar(
    "Description",
    AttentionDescription,
    FeedForwardDescription,
    LayerDescription,
    RmsNormDescription,
)


def _by_class(descriptions: Iterable[Description]) -> dict[str, list[Description]]:
    found: dict[str, list[Description]] = {}
    for description in descriptions:
        for name in description.classes:
            found.setdefault(name, []).append(description)
    return found


_ATTENTION = _by_class(each for family in ARCHITECTURES for each in family.attention)
_FEED_FORWARD = _by_class(each for family in ARCHITECTURES for each in family.feed_forward)
_LAYERS = _by_class(each for family in ARCHITECTURES for each in family.layers)
_RMS_NORMS = _by_class(each for family in ARCHITECTURES for each in family.rms_norms)


def _described(module: Any, known: dict[str, list[Description]]) -> list[Description]:
    """The descriptions of a module's class, or else of the nearest class that it derives from."""
    for kind in type(module).__mro__:
        found = known.get(f"{kind.__module__}.{kind.__qualname__}")
        if found:
            return found
    return []


def described_attention(module: Any) -> AttentionDescription | None:
    """The description of an attention module by its class; None if no architecture has it."""
    return next(iter(_described(module, _ATTENTION)), None)


def described_layer(module: Any) -> LayerDescription | None:
    """The description of a layer by its class; None if no architecture has it."""
    return next(iter(_described(module, _LAYERS)), None)


def rms_norm(module: Any) -> tuple[torch.Tensor, float] | None:
    """Gain and epsilon of an RMSNorm; None if no architecture has its class."""
    for described in _described(module, _RMS_NORMS):
        return at_path(module, described.gain), float(at_path(module, described.epsilon))
    return None


def find_attention(module: Any, parent: Any = None) -> AttentionMaps | None:
    """The maps of an attention module, or None if it is none; ``parent`` is the module around."""
    for description in (*_described(module, _ATTENTION), *usual_names.ATTENTION):
        found = attention_maps(description, module, parent)
        if found is not None:
            return found
    return None


def find_feed_forward(module: Any) -> FeedForwardMaps | None:
    """The maps of a feed-forward module, or None if it is none."""
    for description in (*_described(module, _FEED_FORWARD), *usual_names.FEED_FORWARD):
        found = feed_forward_maps(description, module)
        if found is not None:
            return found
    return None


def find_projections(module: Any) -> dict[str, LinearMap]:
    """The maps of queries, keys and values of an attention module, without that of the output."""
    for description in (*_described(module, _ATTENTION), *usual_names.ATTENTION):
        found = input_maps(description, module)
        if found is not None:
            return found
    raise TypeError(f"{type(module).__name__} has no known maps of queries, keys and values")


def replaceable_attention(module: Any) -> bool:
    """Whether another attention function can take the place of the one that a module calls.

    A subclass may do something else, so its class itself must be described.
    """
    described = described_attention(module)
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    return described is not None and described.replaceable and name in described.classes


def is_cross_attention(module: Any, path: str) -> bool:
    """Whether the attention module at a path of a model attends to another sequence."""
    described = described_attention(module)
    if described is None:
        return False
    flagged = bool(described.cross_flag) and bool(at_path(module, described.cross_flag))
    placed = bool(described.cross_place) and path.endswith(described.cross_place)
    return described.always_cross or flagged or placed


def architecture(name: str) -> Architecture:
    """The description of a family of models, by the name of its file."""
    return next(family for family in ARCHITECTURES if family.name == name)


def query_key_norms(module: nn.Module) -> list[str]:
    """Names of the norms of queries and keys inside an attention module."""
    usual = usual_names.QUERY_KEY_NORM
    return [name for name, _ in module.named_children() if usual.fullmatch(name)]


def number_of_heads(module: nn.Module | None) -> int | None:
    """How many heads a module says it has."""
    described = described_attention(module)
    places = [] if described is None else [described.heads]
    for path in (*places, *usual_names.HEADS, *(f"config.{name}" for name in usual_names.HEADS)):
        count = at_path(module, path)
        if isinstance(count, int) and count > 0:
            return count
    return None
