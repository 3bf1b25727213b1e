"""Read what fused attention is given: queries, keys, bias, scale and causality.

``scaled_dot_product_attention`` is one of several kernels by the time an operation is run. Their
arguments are nearly the same, but for the place of the bias.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from taut.models._tracking.index_arrays import least, narrowed
from taut.models._tracking.origin import Origin
from taut.models._tracking.origin_rules import averaged
from taut.models._tracking.origin_rules import scores as origin_of_scores
from taut.models.score_blocks import FusedScores


class _Places(NamedTuple):
    """Where a kernel takes its bias (a place or a name) and whether it is causal (a place)."""

    bias: int | str | None
    causal: int


# All take query, key and value first, and the scale by name.
FUSED = {
    "_scaled_dot_product_flash_attention_for_cpu": _Places("attn_mask", 4),
    "_scaled_dot_product_flash_attention": _Places(None, 4),
    "_scaled_dot_product_efficient_attention": _Places(3, 6),
    "_scaled_dot_product_cudnn_attention": _Places(3, 6),
    "_scaled_dot_product_fused_attention_overrideable": _Places(3, 5),
}


class FusedCall(NamedTuple):
    """One call of a fused kernel."""

    scores: FusedScores
    value: torch.Tensor


def read_fused(name: str, args: Any, kwargs: Any) -> FusedCall | None:
    """The scores and values of a call; None if it takes them in a form that is not known."""
    places = FUSED[name]
    query, key, value = args[:3]
    grouped = query.ndim == 4 and key.ndim == 4 and query.shape[1] % max(1, key.shape[1]) == 0
    if not grouped or query.is_nested or not query.is_floating_point():
        return None
    if "q_descale" in kwargs or (len(args) > 3 and name.endswith("flash_attention") and
                                 isinstance(args[3], torch.Tensor)):  # fmt: skip
        return None  # quantised
    bias = _argument(args, kwargs, places.bias, "attn_bias")
    causal = bool(_argument(args, kwargs, places.causal, "is_causal"))
    scale = kwargs.get("scale")
    factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
    plain = [t.detach() for t in (query, key)]
    bias = None if bias is None else bias.detach()
    return FusedCall(FusedScores(plain[0], plain[1], bias, factor, causal), value)


def _argument(args: Any, kwargs: Any, place: int | str | None, name: str) -> Any:
    """An argument by its place or its name; None if it is not given."""
    if isinstance(place, str):
        return kwargs.get(place)
    if place is not None and len(args) > place:
        return args[place]
    return kwargs.get(name)


def score_origin(
    query: Origin | None, key: Origin | None, shape: tuple[int, int, int, int]
) -> Origin | None:
    """The origin that the scores would have, expanded wherever it does not vary."""
    if query is None and key is None:
        return None
    if key is not None:
        key = _for_all_heads(key, shape[1]).moved(lambda part: part.transpose(-1, -2))
    return origin_of_scores(query, key, shape)


def averaged_values(scores: Origin | None, value: Origin | None, shape: Any) -> Origin | None:
    """The origin of the output: tokens of the queries, features of the values."""
    if scores is None:
        return None
    if value is None:
        feature = torch.arange(shape[-1], device=scores.sample.device).expand(*shape[:-2], -1)
    else:
        feature = least(_for_all_heads(value, shape[1]).feature, -2)
    return averaged(scores.along(-1), feature, shape, -1)


def _for_all_heads(origin: Origin, heads: int) -> Origin:
    """The origin of keys or values repeated for all the heads that share them."""
    times = heads // origin.sample.shape[1]
    if times == 1:
        return origin

    def repeat(part: torch.Tensor) -> torch.Tensor:
        few = narrowed(part)  # nothing is copied along axes on which it is only repeated
        few = few if few.shape[1] == 1 else few.repeat_interleave(times, dim=1)
        return few.expand(part.shape[0], heads, *part.shape[2:])

    return origin.moved(repeat)
