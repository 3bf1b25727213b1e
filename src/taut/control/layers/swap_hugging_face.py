"""Swap the attention of models of Hugging Face transformers, through their AttentionInterface."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from taut._base.bound import Bound
from taut._base.domain import Domain
from taut._base.optional import needing
from taut.attention import multihead_cosine
from taut.control.layers.cosine import cosine_options, unit
from taut.control.layers.l2 import l2_bound, nearby, value_map
from taut.control.layers.swapped import Swapped
from taut.models import (
    ROLES,
    additive_mask,
    controlled_name,
    find_attention,
    find_projections,
    is_cross_attention,
    merged_mask,
    number_of_heads,
    replaceable_attention,
    visible_mask,
)

Kind = Literal["cosine", "l2"]
CAP = controlled_name("soft-cap")


def hugging_face_swaps(
    model: nn.Module, kind: Kind, options: dict[str, Any]
) -> list[Callable[[], list[Swapped]]]:
    """One function for each model of transformers inside a model, which swaps its attention."""
    found: list[Callable[[], list[Swapped]]] = []
    for prefix, part in pretrained(model):
        settings = {
            name: _settings(part.get_submodule(name), kind, options) for name in _places(part, kind)
        }
        if settings:
            found.append(partial(_swap, part, prefix, kind, settings))
    return found


def pretrained(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """The outermost models of transformers inside a model, with their paths."""
    library = sys.modules.get("transformers")
    if library is None:  # then no model of it can be inside
        return
    inside: set[int] = set()
    for prefix, part in model.named_modules():
        if isinstance(part, library.PreTrainedModel) and id(part) not in inside:
            inside |= {id(module) for module in part.modules()}
            yield prefix, part


def _places(model: Any, kind: str) -> list[str]:
    """Names of the attention modules of a model."""
    modules = dict(model.named_modules())
    places = [name for name, module in modules.items() if replaceable_attention(module)]
    around = {name.rpartition(".")[0] for name in places}  # BertAttention and the like
    others = {
        type(module).__name__
        for name, module in modules.items()
        if type(module).__name__.endswith("Attention") and name not in around and name not in places
    }
    if others and places:
        raise ValueError(
            "only a part of the attention can be swapped; not supported: "
            f"{', '.join(sorted(others))}"
        )
    if any(modules[name].config._attn_implementation == CAP for name in places):
        raise ValueError("this model has a soft cap; remove it before the attention is swapped")
    for name in places:
        if kind == "l2" and is_cross_attention(modules[name], name):
            raise ValueError(
                f"{name} attends to another sequence, where L2 attention has no Lipschitz "
                'constant: take "cosine"'
            )
    return places


def _settings(module: Any, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """The kind and the options, as they are kept in the configuration."""
    if kind == "l2":
        return {"kind": kind}
    kept = getattr(module.config, "taut_attention", None) or {}
    if kept.get("kind") == kind:
        options = {**{name: kept[name] for name in ("nu", "scale", "epsilon")}, **options}
    width = len(find_projections(module)["query"].weight) // _heads(module)
    return {"kind": kind, **cosine_options(width, **options)}


def _heads(module: nn.Module) -> int:
    heads = number_of_heads(module)
    assert heads is not None
    return heads


def _swap(
    model: Any, prefix: str, kind: Kind, settings: dict[str, dict[str, Any]]
) -> list[Swapped]:
    with needing("swapped attention needs transformers", "hf"):
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

    implementation = controlled_name(kind)
    AttentionInterface.register(implementation, _cosine if kind == "cosine" else _l2)
    AttentionMaskInterface.register(implementation, sdpa_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(implementation)
    for place in settings:
        if model.get_submodule(place).config._attn_implementation != implementation:
            model.set_attn_implementation(before)
            raise ValueError(f"transformers cannot change the attention of {place}")
    swapped = []
    for place, options in settings.items():
        module = model.get_submodule(place)
        module.config.taut_attention = options
        name = f"{prefix}.{place}" if prefix else place
        swapped.append(Swapped(name, module, partial(_bound, model, place)))
    return swapped


def _cosine(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[Tensor, Tensor | None]:
    """Cosine attention on heads (batch, heads, tokens, width), as transformers calls it."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    options = module.config.taut_attention
    q, k, v = (unit(u, options["epsilon"]) for u in (query, key, value))
    output, _ = sdpa_attention_forward(
        module, q, k, v, attention_mask, dropout=dropout, scaling=options["scale"], **extra
    )
    return options["nu"] * output, None


def _l2(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **extra: Any,
) -> tuple[Tensor, Tensor | None]:
    """L2 attention, called likewise; of keys and values it uses only the weights of the values."""
    if query.shape[2] != key.shape[2]:
        raise NotImplementedError(
            "L2 attention makes its keys from the queries and has no cache: pass use_cache=False"
        )
    maps = find_projections(module)
    both = value_map(maps["query"].weight, maps["value"].weight, query.shape[1])
    v = query @ both.to(query.dtype)
    if (shift := maps["value"].bias) is not None:
        v = v + shift.reshape(query.shape[1], 1, -1).to(v.dtype)
    causal = module.is_causal if is_causal is None else is_causal
    shape = (*query.shape[:3], query.shape[2])
    if attention_mask is None:
        term = merged_mask(None, None, causal=bool(causal), shape=shape, like=query)
    elif attention_mask.dtype == torch.bool:
        term = visible_mask(attention_mask, query)
    else:
        term = additive_mask(attention_mask, query, name="attention_mask")
    output, _ = nearby(query, v, term, dropout=dropout, training=module.training)
    return output.transpose(1, 2).contiguous(), None


def _bound(model: Any, place: str, n: int, **options: Any) -> Bound:
    """Lipschitz constant of the attention at a place, with its output projection."""
    module = model.get_submodule(place)
    chosen, kind = module.config._attn_implementation, module.config.taut_attention["kind"]
    if chosen != controlled_name(kind):
        raise ValueError(
            f"the attention of {place} is no longer the swapped one: it is {chosen!r} now; call "
            "swap_attention again"
        )
    found = find_attention(module, model.get_submodule(place.rpartition(".")[0]))
    assert found is not None
    query, key, value, output = (found.maps[role].weight for role in ROLES[:4])
    heads = found.heads
    settings = dict(module.config.taut_attention)
    if settings.pop("kind") == "l2":
        return l2_bound(query, value, output, heads, n, _evaluated, **options)
    given: dict[str, Any] = {"context": None, "mask": "any", **options}
    if is_cross_attention(module, place) != (given["context"] is not None):
        raise ValueError(f"context= is for cross-attention, and needed there: {place}")
    bound = multihead_cosine(query, key, value, output, heads=heads, n=n, **given, **settings)
    return bound._replace(domain=_evaluated(bound.domain))


def _evaluated(domain: Domain) -> Domain:
    return domain.given("dropout off")
