"""The rule for torch.nn.MultiheadAttention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from taut.networks.interpreter import Interpreter
from taut.networks.operations.attention_parameters import Heads
from taut.networks.region import Region
from taut.networks.rule_register import Call, register
from taut.networks.rules.described import described_heads


def heads_of(module: nn.MultiheadAttention) -> Heads:
    """The weights of torch's attention module."""
    if module.bias_k is not None or module.add_zero_attn:
        raise TypeError("no rule for MultiheadAttention with add_bias_kv or add_zero_attn")
    return described_heads(module)


def call_attention(module: Any, x: Any, *, context: Any = None, mask: Any = None) -> Any:
    """Call an attention module with the interface of torch's, on tokens with the batch in front."""
    y = x if context is None else context
    hidden = torch_mask(mask, module, x, y)
    if not module.batch_first:
        x, y = x.transpose(0, 1), y.transpose(0, 1)
    found = module(x, y, y, attn_mask=hidden, need_weights=False)[0]
    return found if module.batch_first else found.transpose(0, 1)


def multihead_rule(heads: Callable[[Any], Heads]) -> Call:
    """The rule of modules that are called as torch's attention; ``heads`` reads their weights."""

    def bound(
        run: Interpreter,
        module: Any,
        x: Region,
        *,
        context: Region | None = None,
        mask: torch.Tensor | None = None,
    ) -> Region:
        run.steady(module, module.dropout)
        return run.attention(x, heads(module), context=context, mask=mask)

    return bound


register(nn.MultiheadAttention, call=call_attention)(multihead_rule(heads_of))


def torch_mask(mask: torch.Tensor | None, module: Any, x: Any, y: Any) -> torch.Tensor | None:
    """The mask as torch takes it: True where nothing is seen, one for each sample and head.

    ``x`` and ``y`` are the tokens of the queries and of the keys, with the batch in front.
    """
    if mask is None:
        return None
    if mask.ndim == 2:
        return ~mask.expand(x.shape[1], y.shape[1])
    four = mask[:, None] if mask.ndim == 3 else mask
    return ~four.expand(len(x), module.num_heads, x.shape[1], y.shape[1]).flatten(0, 1)
