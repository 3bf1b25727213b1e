"""Rules for T5: relative positions, no scale of the scores, plain and gated MLPs."""

from __future__ import annotations

from typing import Any

import torch

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
from taut.networks.rules.hugging_face import call_text, padded, sees

T5 = architecture("t5")


@register(*T5.named("Attention"), call=call_attention)
def _t5_attention(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> Region:
    if bias is None and module.has_relative_attention_bias:
        bias = module.compute_bias(x.tokens, (context or x).tokens)[0]
    return bound_attention(run, module, x, context=context, mask=mask, bias=bias)


register(*T5.named("LayerFF"))(bound_layer)


@register(*T5.named("Block"), call=call_context)
def _t5_block(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> Region:
    run.explain("residuals", "chain")
    if mask is None:
        mask = sees(x.tokens, causal=module.is_decoder)
    itself = module.layer[0]
    y = run(itself.layer_norm, x, "layer.0.layer_norm")
    y = run(itself.SelfAttention, y, "layer.0.SelfAttention", mask=mask, bias=bias)
    x = run.add(x, run(itself.dropout, y, "layer.0.dropout"))
    if module.is_decoder and context is not None:
        across = module.layer[1]
        y = run(across.layer_norm, x, "layer.1.layer_norm")
        name = "layer.1.EncDecAttention"
        y = run(across.EncDecAttention, y, name, context=context, mask=context_mask)
        x = run.add(x, run(across.dropout, y, "layer.1.dropout"))
    return run(module.layer[-1], x, f"layer.{len(module.layer) - 1}")


@register(*T5.named("Stack"), call=call_stack)
def _t5_stack(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    """All blocks share the relative positions of the first."""
    run.explain("chain", "chain")
    run.steady(module.dropout, module.dropout.p)
    bias = module.block[0].layer[0].SelfAttention.compute_bias(x.tokens, x.tokens)[0]
    inputs: dict[str, Any] = {
        "mask": padded(sees(x.tokens, causal=module.is_decoder), mask, x.tokens),
        "bias": bias,
    }
    if context is not None:
        inputs["context"] = context
        inputs["context_mask"] = padded(None, context_mask, x.tokens)
    for index, block in enumerate(module.block):
        x = run(block, x, f"block.{index}", **inputs)
    return run(module.final_layer_norm, x, "final_layer_norm")


@register(*T5.named("EncoderModel"), call=call_text)
def _t5_encoder(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("chain", "chain")
    return run(module.encoder, x, "encoder", mask=mask)


@register(*T5.named("ForConditionalGeneration"), call=call_pair)
def _t5_lm(run: Interpreter, module: Any, x: Region, *, context: Region, **masks: Any) -> Region:
    run.explain("chain", "chain")
    memory = run(module.encoder, context, "encoder", mask=masks.get("context_mask"))
    x = run(module.decoder, x, "decoder", context=memory, **masks)
    if module.config.scale_decoder_outputs:
        x = run.scale(x, float(module.model_dim**-0.5), "scale")
    return run(module.lm_head, x, "lm_head")
