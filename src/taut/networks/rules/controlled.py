"""Rules for the attention layers of taut.control.

Classes are named, not imported: networks does not know control.
"""

from __future__ import annotations

from typing import Any

import torch

from taut.models import find_attention
from taut.networks.interpreter import Interpreter
from taut.networks.operations.attention_parameters import Heads
from taut.networks.operations.distance_parameters import DistanceHeads
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.attention_functions import capped_heads, cosine_heads
from taut.networks.rules.described import described_heads, linear_affine
from taut.networks.rules.torch_attention import call_attention, multihead_rule

_LAYERS = "taut.control.layers"


def _cosine(module: Any) -> Heads:
    options = {"nu": module.nu, "scale": module.scale, "epsilon": module.epsilon}
    return cosine_heads(described_heads(module), **options)


def _capped(module: Any) -> Heads:
    return capped_heads(described_heads(module), limit=module.limit)


register(f"{_LAYERS}.cosine.CosineAttention", call=call_attention)(multihead_rule(_cosine))
register(f"{_LAYERS}.capped.CappedAttention", call=call_attention)(multihead_rule(_capped))


@register(f"{_LAYERS}.l2.L2Attention", call=call_attention)
def _l2(run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.steady(module, module.dropout)
    found = find_attention(module)
    assert found is not None
    query, value, output = (
        linear_affine(found.maps[role]) for role in ("query", "value", "output")
    )
    return run.distance_attention(x, DistanceHeads(query, value, output, found.heads), mask=mask)
