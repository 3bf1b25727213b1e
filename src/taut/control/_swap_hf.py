"""The same for models of Hugging Face transformers, through their AttentionInterface."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from taut._bound import Bound
from taut._optional import needing
from taut.control._cosine import cosine_options, unit
from taut.control._cosine_bound import cosine_bound
from taut.control._l2 import l2_bound, nearby, value_map
from taut.control._masks import additive, merged

if TYPE_CHECKING:
    from taut.control._swap import Swapped

_BERTS = ("Bert", "Roberta", "XLMRoberta", "Electra")
PAIRS = {"MarianAttention", "BartAttention"}  # one class, for cross-attention as well
SELF = {"GPT2Attention", "ViTAttention", *PAIRS, *(f"{name}SelfAttention" for name in _BERTS)}
CROSS = {f"{name}CrossAttention" for name in _BERTS}
CAP = "taut-soft-cap"  # the attention function of SoftCap
Affine = tuple[Tensor, Tensor | None]


def find(model: nn.Module, kind: str, options: dict[str, Any]) -> list[Callable[[], list[Swapped]]]:
    """A function for each model of transformers inside that swaps its attention."""
    found: list[Callable[[], list[Swapped]]] = []
    for prefix, part in pretrained(model):
        settings = {
            name: _settings(part.get_submodule(name), kind, options) for name in _places(part, kind)
        }
        if settings:
            found.append(partial(_swap, part, prefix, kind, settings))
    return found


def pretrained(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """The models of transformers inside and their paths, without those inside them."""
    library = sys.modules.get("transformers")
    if library is None:  # then nothing of it can be in the model
        return
    inside: set[int] = set()
    for prefix, part in model.named_modules():
        if isinstance(part, library.PreTrainedModel) and id(part) not in inside:
            inside |= {id(module) for module in part.modules()}
            yield prefix, part


def _places(model: Any, kind: str) -> list[str]:
    """Names of the attention modules of a model."""
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    places = [name for name, found in kinds.items() if found in SELF | CROSS]
    around = {name.rpartition(".")[0] for name in places}  # BertAttention and the like
    others = {
        found
        for name, found in kinds.items()
        if found.endswith("Attention") and name not in around and name not in places
    }
    if others and places:
        raise ValueError(f"not supported, next to what is: {', '.join(sorted(others))}")
    if any(model.get_submodule(name).config._attn_implementation == CAP for name in places):
        raise ValueError("a soft cap is on this model; swap the attention of one without it")
    for name in places:
        if kind == "l2" and _crosses(model, name):
            raise ValueError(
                f"{name} attends to another sequence, where L2 attention has no Lipschitz "
                'constant: take "cosine"'
            )
    return places


def _crosses(model: nn.Module, place: str) -> bool:
    module = model.get_submodule(place)
    if type(module).__name__ in PAIRS:
        return place.endswith("encoder_attn")
    return type(module).__name__ in CROSS or bool(getattr(module, "is_cross_attention", False))


def _heads(module: Any) -> int:
    """Encoders and decoders may differ in this."""
    return int(getattr(module, "num_heads", module.config.num_attention_heads))


def _settings(module: Any, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Kind and numbers, as they are kept in the configuration."""
    if kind == "l2":
        return {"kind": kind}
    kept = getattr(module.config, "taut_attention", None) or {}
    if kept.get("kind") == kind:
        options = {**{name: kept[name] for name in ("nu", "tau", "eps")}, **options}
    query = projections(module)[0][0]
    return {
        "kind": kind,
        **cosine_options(len(query) // _heads(module), **options),
    }


def _swap(model: Any, prefix: str, kind: str, settings: dict[str, dict[str, Any]]) -> list[Swapped]:
    with needing("swapped attention needs transformers", "hf"):
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

    from taut.control._swap import Swapped

    implementation = f"taut-{kind}"
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
    q, k, v = (unit(u, options["eps"]) for u in (query, key, value))
    output, _ = sdpa_attention_forward(
        module, q, k, v, attention_mask, dropout=dropout, scaling=options["tau"], **extra
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
    """L2 attention, likewise. Of keys and values nothing is taken but the weights of the values."""
    if query.shape[2] != key.shape[2]:
        raise NotImplementedError(
            "L2 attention makes its keys of the queries and has no cache: pass use_cache=False"
        )
    (wq, _), _, (wv, shift) = projections(module)
    v = query @ value_map(wq, wv, query.shape[1]).to(query.dtype)
    if shift is not None:
        v = v + shift.reshape(query.shape[1], 1, -1).to(v.dtype)
    causal = module.is_causal if is_causal is None else is_causal
    shape = (*query.shape[:3], query.shape[2])
    if attention_mask is None:
        term = merged(None, None, causal=bool(causal), shape=shape, like=query)
    else:  # here True is what is seen
        mask = ~attention_mask if attention_mask.dtype == torch.bool else attention_mask
        term = additive(mask, query, name="attention_mask")
    output, _ = nearby(query, v, term, dropout=dropout, training=module.training)
    return output.transpose(1, 2).contiguous(), None


def projections(module: Any) -> tuple[Affine, Affine, Affine]:
    """Weights (outputs, inputs) and biases of queries, keys and values."""
    if hasattr(module, "c_attn"):  # GPT-2 keeps them side by side, inputs first
        weights = list(module.c_attn.weight.T.split(module.embed_dim))
        biases = list(module.c_attn.bias.split(module.embed_dim))
        if module.is_cross_attention:
            weights.insert(0, module.q_attn.weight.T)
            biases.insert(0, module.q_attn.bias)
        query, key, value = zip(weights, biases, strict=True)
        return query, key, value
    names = (
        ("query", "key", "value") if hasattr(module, "query") else ("q_proj", "k_proj", "v_proj")
    )
    query, key, value = ((layer.weight, layer.bias) for layer in map(module.get_submodule, names))
    return query, key, value


def _bound(model: Any, place: str, n: int, **options: Any) -> Bound:
    """The constant of the attention at this place, with its output projection."""
    module = model.get_submodule(place)
    chosen, kind = module.config._attn_implementation, module.config.taut_attention["kind"]
    if chosen != f"taut-{kind}":
        raise ValueError(
            f"the attention of {place} is not that of the swap any more: it is {chosen!r} now; "
            "swap_attention puts it back"
        )
    if hasattr(module, "c_proj"):
        output = module.c_proj.weight.T
    elif hasattr(module, "o_proj"):
        output = module.o_proj.weight
    elif hasattr(module, "out_proj"):
        output = module.out_proj.weight
    else:
        output = model.get_submodule(place.rpartition(".")[0]).output.dense.weight
    query, key, value = (weight for weight, _ in projections(module))
    heads = _heads(module)
    settings = dict(module.config.taut_attention)
    if settings.pop("kind") == "l2":
        return l2_bound(query, value, output, heads, n, _evaluated, **options)
    given: dict[str, Any] = {"context": None, "mask": "any", **options}
    if _crosses(model, place) != (given["context"] is not None):
        raise ValueError(f"context= is for cross-attention, and needed there: {place}")
    bound = cosine_bound((query, key, value), output, heads, n=n, **given, **settings)
    return bound._replace(domain=_evaluated(bound.domain))


def _evaluated(domain: str) -> str:
    return f"{domain}, dropout off"
