"""Rules for the attention layers of taut.control.

Classes are named, not imported: networks and control do not know each other.
"""

from __future__ import annotations

from typing import Any

import torch

from taut.models import find_attention
from taut.networks.interpreter import Interpreter
from taut.networks.operations.distance_parameters import DistanceHeads
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.attention_functions import capped_heads, cosine_heads
from taut.networks.rules.described import described_heads
from taut.networks.rules.torch_attention import call_attention

_LAYERS = "taut.control.layers"


@register(f"{_LAYERS}.cosine.CosineAttention", call=call_attention)
def _cosine(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
) -> Region:
    run.steady(module, module.dropout)
    heads = cosine_heads(
        described_heads(module), nu=module.nu, scale=module.scale, epsilon=module.epsilon
    )
    return run.attention(x, heads, context=context, mask=mask)


@register(f"{_LAYERS}.capped.CappedAttention", call=call_attention)
def _capped(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
) -> Region:
    run.steady(module, module.dropout)
    heads = capped_heads(described_heads(module), limit=module.limit)
    return run.attention(x, heads, context=context, mask=mask)


@register(f"{_LAYERS}.l2.L2Attention", call=call_attention)
def _l2(run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.steady(module, module.dropout)
    found = find_attention(module)
    assert found is not None
    query, value, output = (found.maps[role] for role in ("query", "value", "output"))
    heads = DistanceHeads(
        (query.weight, query.bias), (value.weight, value.bias), (output.weight, output.bias),
        found.heads,
    )  # fmt: skip
    return run.distance_attention(x, heads, mask=mask)
