"""Rules for T5: relative positions, no scale of the scores, plain and gated MLPs."""

from __future__ import annotations

from typing import Any

import torch

from taut.torch._hf import call_text, named, padded, sees
from taut.torch._hf_pairs import call_attention, call_context, call_pair, call_stack, projections
from taut.torch._mlp import affine
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run


@register(*named("t5", "T5Attention"), call=call_attention)
def _t5_attention(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> Region:
    run.steady(module, module.dropout)
    if bias is None and module.has_relative_attention_bias:
        bias = module.compute_bias(x.tokens, (context or x).tokens)[0]
    heads = projections(module, ("q", "k", "v", "o"), module.n_heads, module.scaling)
    return run.attention(x, heads, context=context, mask=mask, bias=bias)


@register(*named("t5", "T5DenseActDense"))
def _t5_dense(run: Run, module: Any, x: Region) -> Region:
    run.note(None, "", "mlp", ("chain",), 1.0)
    run.steady(module.dropout, module.dropout.p)
    return run.mlp(x, affine(module.wi), module.act, affine(module.wo), "wi+wo")


@register(*named("t5", "T5DenseGatedActDense"))
def _t5_gated(run: Run, module: Any, x: Region) -> Region:
    run.note(None, "", "gated mlp", ("chain",), 1.0)
    run.steady(module.dropout, module.dropout.p)
    gate, up, down = affine(module.wi_0), affine(module.wi_1), affine(module.wo)
    return run.gated(x, gate, module.act, up, down, "wi_0*wi_1+wo")


@register(*named("t5", "T5LayerFF"))
def _t5_ff(run: Run, module: Any, x: Region) -> Region:
    run.note(None, "", "residual", ("chain",), 1.0)
    y = run(module.DenseReluDense, run(module.layer_norm, x, "layer_norm"), "DenseReluDense")
    return run.add(x, run(module.dropout, y, "dropout"))


@register(*named("t5", "T5Block"), call=call_context)
def _t5_block(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> Region:
    run.note(None, "", "residuals", ("chain",), 1.0)
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


@register(*named("t5", "T5Stack"), call=call_stack)
def _t5_stack(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    """All blocks share the relative positions of the first."""
    run.note(None, "", "chain", ("chain",), 1.0)
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


@register(*named("t5", "T5EncoderModel"), call=call_text)
def _t5_encoder(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    return run(module.encoder, x, "encoder", mask=mask)


@register(*named("t5", "T5ForConditionalGeneration"), call=call_pair)
def _t5_lm(run: Run, module: Any, x: Region, *, context: Region, **masks: Any) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    memory = run(module.encoder, context, "encoder", mask=masks.get("context_mask"))
    x = run(module.decoder, x, "decoder", context=memory, **masks)
    if module.config.scale_decoder_outputs:
        x = run.scale(x, float(module.model_dim**-0.5), "scale")
    return run(module.lm_head, x, "lm_head")
