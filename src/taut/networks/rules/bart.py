"""Rules for Marian and BART: a norm after each residual."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.models import architecture
from taut.networks.interpreter import Interpreter
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.described import bound_attention, bound_layer
from taut.networks.rules.encoder_decoder import (
    call_attention,
    call_context,
    call_pair,
    call_stack,
)
from taut.networks.rules.hugging_face import named, padded, sees

BART = architecture("bart")


@register(*BART.named("Attention"), call=call_attention)
def _bart_attention(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
) -> Region:
    return bound_attention(run, module, x, context=context, mask=mask)


register(*BART.named("EncoderLayer"), call=call_context)(bound_layer)


def _call_decoder_layer(module: Any, x: Any, *, context: Any, **masks: Any) -> Any:
    masks["mask"] = sees(x.shape[1], causal=True) if masks.get("mask") is None else masks["mask"]
    return call_context(module, x, context=context, **masks)


@register(*BART.named("DecoderLayer"), call=_call_decoder_layer)
def _bart_decoder_layer(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    seen = sees(x.tokens, causal=True) if mask is None else mask
    return bound_layer(run, module, x, context=context, mask=seen, context_mask=context_mask)


def _placed(run: Interpreter, module: Any, x: Region) -> Region:
    """Add positions, and for BART a norm; Marian's decoder scales embeddings that are passed in."""
    kind = type(module).__name__
    if kind == "MarianDecoder" and module.embed_scale != 1.0:
        x = run.scale(x, float(module.embed_scale), "embed_scale")
    positions: nn.Embedding = module.embed_positions
    offset = getattr(positions, "offset", 0)
    x = run.shift(x, positions.weight[offset : offset + x.tokens])
    if hasattr(module, "layernorm_embedding"):
        x = run(module.layernorm_embedding, x, "layernorm_embedding")
    return x


@register(*BART.named("Encoder"), call=call_stack)
def _bart_encoder(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("chain", "chain")
    run.steady(module, max(module.dropout, module.layerdrop))
    x = _placed(run, module, x)
    seen = padded(None, mask, x.tokens)
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", mask=seen)
    return x


@register(*BART.named("Decoder"), call=call_stack)
def _bart_decoder(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.explain("chain", "chain")
    run.steady(module, max(module.dropout, module.layerdrop))
    x = _placed(run, module, x)
    inputs = {
        "mask": padded(sees(x.tokens, causal=True), mask, x.tokens),
        "context_mask": padded(None, context_mask, x.tokens),
    }
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", context=context, **inputs)
    return x


@register(*named("marian", "MarianMTModel"), *named("bart", "BartForConditionalGeneration"),
          call=call_pair)  # fmt: skip
def _bart_lm(run: Interpreter, module: Any, x: Region, *, context: Region, **masks: Any) -> Region:
    run.explain("chain", "chain")
    x = run(module.model, x, "model", context=context, **masks)
    return run.linear(x, module.lm_head.weight, module.final_logits_bias[0], "lm_head")
