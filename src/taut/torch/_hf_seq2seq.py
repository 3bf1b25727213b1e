"""Rules for encoder-decoder models: T5, Marian, BART."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.torch._heads import Heads
from taut.torch._hf import additive, call_text, named, padded, sees
from taut.torch._mlp import affine
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run

_BARTS = (("marian", "Marian"), ("bart", "Bart"))


def _barts(*names: str) -> tuple[str, ...]:
    return tuple(n for family, kind in _BARTS for n in named(family, *(kind + x for x in names)))


def _projections(module: Any, names: tuple[str, str, str, str], heads: int, scale: float) -> Heads:
    query, key, value, output = (affine(getattr(module, name)) for name in names)
    return Heads(query, key, value, output, heads, heads, scale)


def _call_context(
    module: Any, x: Any, *, context: Any = None, mask: Any = None, context_mask: Any = None
) -> Any:
    """A decoder's block or stack, or an encoder's."""
    given: dict[str, Any] = {}
    if context is not None:
        given["encoder_hidden_states"] = context
        if context_mask is not None:
            given["encoder_attention_mask"] = additive(context_mask, x)
    decodes = getattr(module, "is_decoder", context is not None)
    seen = sees(x.shape[1], causal=decodes) if mask is None else mask
    return module(x, attention_mask=None if seen is None else additive(seen, x), **given)


def _call_attention(module: Any, x: Any, *, context: Any = None, mask: Any = None) -> Any:
    name = "mask" if hasattr(module, "n_heads") else "attention_mask"
    fixed = None if mask is None else additive(mask, x)
    return module(x, key_value_states=context, **{name: fixed})


# T5 -------------------------------------------------------------------------------------------


@register(*named("t5", "T5Attention"), call=_call_attention)
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
    heads = _projections(module, ("q", "k", "v", "o"), module.n_heads, module.scaling)
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


@register(*named("t5", "T5Block"), call=_call_context)
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


def _call_stack(
    module: Any, x: Any, *, context: Any = None, mask: Any = None, context_mask: Any = None
) -> Any:
    given: dict[str, Any] = {"inputs_embeds": x}
    if mask is not None:
        given["attention_mask"] = mask.to(x.device).long()
    if context is not None:
        given["encoder_hidden_states"] = context
    if context_mask is not None:
        given["encoder_attention_mask"] = context_mask.to(x.device).long()
    return module(**given)


@register(*named("t5", "T5Stack"), call=_call_stack)
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


def _call_pair(
    module: Any, x: Any, *, context: Any, mask: Any = None, context_mask: Any = None
) -> Any:
    """An encoder-decoder model: tokens go into the decoder, the context into the encoder."""
    given: dict[str, Any] = {"inputs_embeds": context, "decoder_inputs_embeds": x}
    if mask is not None:
        given["decoder_attention_mask"] = mask.to(x.device).long()
    if context_mask is not None:
        given["attention_mask"] = context_mask.to(x.device).long()
    return module(**given)


@register(
    *named("t5", "T5Model"), *named("marian", "MarianModel"), *named("bart", "BartModel"),
    call=_call_pair,
)  # fmt: skip
def _pair(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.note(None, "", "encoder into decoder", ("chain",), 1.0)
    memory = run(module.encoder, context, "encoder", mask=context_mask)
    return run(module.decoder, x, "decoder", context=memory, mask=mask, context_mask=context_mask)


@register(*named("t5", "T5ForConditionalGeneration"), call=_call_pair)
def _t5_lm(run: Run, module: Any, x: Region, *, context: Region, **masks: Any) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    memory = run(module.encoder, context, "encoder", mask=masks.get("context_mask"))
    x = run(module.decoder, x, "decoder", context=memory, **masks)
    if module.config.scale_decoder_outputs:
        x = run.scale(x, float(module.model_dim**-0.5), "scale")
    return run(module.lm_head, x, "lm_head")


# Marian and BART ------------------------------------------------------------------------------


@register(*_barts("Attention"), call=_call_attention)
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
    heads = _projections(module, names, module.num_heads, module.scaling)
    return run.attention(x, heads, context=context, mask=mask)


def _feed_forward(run: Run, module: Any, x: Region) -> Region:
    run.steady(module, max(module.dropout, module.activation_dropout))
    y = run.mlp(x, affine(module.fc1), module.activation_fn, affine(module.fc2), "fc1+fc2")
    return run(module.final_layer_norm, run.add(x, y), "final_layer_norm")


@register(*_barts("EncoderLayer"), call=_call_context)
def _bart_encoder_layer(
    run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.note(None, "", "residuals, each then a norm", ("chain",), 1.0)
    y = run(module.self_attn, x, "self_attn", mask=mask)
    x = run(module.self_attn_layer_norm, run.add(x, y), "self_attn_layer_norm")
    return _feed_forward(run, module, x)


def _call_decoder_layer(module: Any, x: Any, *, context: Any, **masks: Any) -> Any:
    masks["mask"] = sees(x.shape[1], causal=True) if masks.get("mask") is None else masks["mask"]
    return _call_context(module, x, context=context, **masks)


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


@register(*_barts("Encoder"), call=_call_stack)
def _bart_encoder(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    run.steady(module, max(module.dropout, module.layerdrop))
    x = _placed(run, module, x)
    seen = padded(None, mask, x.tokens)
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", mask=seen)
    return x


@register(*_barts("Decoder"), call=_call_stack)
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
          call=_call_pair)  # fmt: skip
def _bart_lm(run: Run, module: Any, x: Region, *, context: Region, **masks: Any) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    x = run(module.model, x, "model", context=context, **masks)
    return run.linear(x, module.lm_head.weight, module.final_logits_bias[0], "lm_head")
