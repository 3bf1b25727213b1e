"""Rules for Marian and BART: a norm after each residual."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.torch._hf import named, padded, sees
from taut.torch._hf_pairs import call_attention, call_context, call_pair, call_stack, projections
from taut.torch._mlp import affine
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run

_BARTS = (("marian", "Marian"), ("bart", "Bart"))


def _barts(*names: str) -> tuple[str, ...]:
    return tuple(n for family, kind in _BARTS for n in named(family, *(kind + x for x in names)))


@register(*_barts("Attention"), call=call_attention)
def _bart_attention(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
) -> Region:
    run.steady(module, module.dropout)
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    heads = projections(module, names, module.num_heads, module.scaling)
    return run.attention(x, heads, context=context, mask=mask)


def _feed_forward(run: Run, module: Any, x: Region) -> Region:
    run.steady(module, max(module.dropout, module.activation_dropout))
    y = run.mlp(x, affine(module.fc1), module.activation_fn, affine(module.fc2), "fc1+fc2")
    return run(module.final_layer_norm, run.add(x, y), "final_layer_norm")


@register(*_barts("EncoderLayer"), call=call_context)
def _bart_encoder_layer(
    run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.note(None, "", "residuals, each then a norm", ("chain",), 1.0)
    y = run(module.self_attn, x, "self_attn", mask=mask)
    x = run(module.self_attn_layer_norm, run.add(x, y), "self_attn_layer_norm")
    return _feed_forward(run, module, x)


def _call_decoder_layer(module: Any, x: Any, *, context: Any, **masks: Any) -> Any:
    masks["mask"] = sees(x.shape[1], causal=True) if masks.get("mask") is None else masks["mask"]
    return call_context(module, x, context=context, **masks)


@register(*_barts("DecoderLayer"), call=_call_decoder_layer)
def _bart_decoder_layer(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.note(None, "", "residuals, each then a norm", ("chain",), 1.0)
    seen = sees(x.tokens, causal=True) if mask is None else mask
    y = run(module.self_attn, x, "self_attn", mask=seen)
    x = run(module.self_attn_layer_norm, run.add(x, y), "self_attn_layer_norm")
    y = run(module.encoder_attn, x, "encoder_attn", context=context, mask=context_mask)
    x = run(module.encoder_attn_layer_norm, run.add(x, y), "encoder_attn_layer_norm")
    return _feed_forward(run, module, x)


def _placed(run: Run, module: Any, x: Region) -> Region:
    """Positions, and for BART a norm. Marian's decoder scales embeddings that are passed in."""
    kind = type(module).__name__
    if kind == "MarianDecoder" and module.embed_scale != 1.0:
        x = run.scale(x, float(module.embed_scale), "embed_scale")
    positions: nn.Embedding = module.embed_positions
    offset = getattr(positions, "offset", 0)
    x = run.shift(x, positions.weight[offset : offset + x.tokens])
    if hasattr(module, "layernorm_embedding"):
        x = run(module.layernorm_embedding, x, "layernorm_embedding")
    return x


@register(*_barts("Encoder"), call=call_stack)
def _bart_encoder(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    run.steady(module, max(module.dropout, module.layerdrop))
    x = _placed(run, module, x)
    seen = padded(None, mask, x.tokens)
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", mask=seen)
    return x


@register(*_barts("Decoder"), call=call_stack)
def _bart_decoder(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
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
def _bart_lm(run: Run, module: Any, x: Region, *, context: Region, **masks: Any) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    x = run(module.model, x, "model", context=context, **masks)
    return run.linear(x, module.lm_head.weight, module.final_logits_bias[0], "lm_head")
