"""Rules for decoders: GPT-2, Llama, Mistral, Qwen."""

from __future__ import annotations

from typing import Any

import torch

from taut.models import architecture, is_cross_attention
from taut.networks.interpreter import Interpreter
from taut.networks.operations.attention_parameters import Rotary
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.described import bound_attention, bound_layer
from taut.networks.rules.hugging_face import (
    call_text,
    config_of,
    neighbour,
    padded,
    sees,
    transformers_mask,
    window_of,
)  # fmt: skip

GPT2, LLAMA = architecture("gpt2"), architecture("llama")


def _call_gpt2(module: Any, x: Any, *, mask: Any = None) -> Any:
    seen = mask if mask is not None else sees(x.shape[1], causal=True)
    return module(x, attention_mask=None if seen is None else transformers_mask(seen, x))


@register(*GPT2.named("Attention"), call=_call_gpt2)
def _gpt2_attention(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    if is_cross_attention(module, ""):
        raise TypeError("no rule for GPT-2 with cross-attention")
    return bound_attention(
        run, module, x, mask=sees(x.tokens, causal=True) if mask is None else mask
    )


register(*GPT2.named("Block"), call=_call_gpt2)(bound_layer)


@register(*GPT2.named("Model"), call=call_text)
def _gpt2(run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.explain("chain", "chain")
    x = run(module.drop, run.shift(x, module.wpe.weight[: x.tokens]), "drop")
    seen = padded(sees(x.tokens, causal=True), mask, x.tokens)
    for index, block in enumerate(module.h):
        x = run(block, x, f"h.{index}", mask=seen)
    return run(module.ln_f, x, "ln_f")


@register(*GPT2.named("LMHeadModel"), call=call_text)
def _gpt2_lm(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("chain", "chain")
    return run(module.lm_head, run(module.transformer, x, "transformer", mask=mask), "lm_head")


def _rotary(module: Any, tokens: int) -> Rotary:
    """Cosines and sines for positions from 0 on, as the model's own class makes them."""
    config = config_of(module)
    prefix = type(module).__name__.removesuffix("Attention").removesuffix("DecoderLayer")
    embedding = neighbour(module, f"{prefix}RotaryEmbedding")(config)
    like = torch.zeros(1, dtype=torch.float32)
    cosine, sine = embedding(like, torch.arange(tokens)[None])
    return cosine[0], sine[0]


def _call_llama(module: Any, x: Any, *, mask: Any = None, rotary: Any = None) -> Any:
    seen = _seen(module, x.shape[1]) if mask is None else mask
    positions = _rotary(module, x.shape[1]) if rotary is None else rotary
    embedded = tuple(part[None].to(x) for part in positions)
    fixed = None if seen is None else transformers_mask(seen, x)
    return module(x, attention_mask=fixed, position_embeddings=embedded)


def _seen(module: Any, tokens: int) -> torch.Tensor | None:
    attention = getattr(module, "self_attn", module)
    window = window_of(config_of(module), getattr(attention, "layer_idx", None))
    return sees(tokens, causal=True, window=window)


@register(*LLAMA.named("Attention"), call=_call_llama)
def _llama_attention(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    mask: torch.Tensor | None = None,
    rotary: Rotary | None = None,
) -> Region:
    return bound_attention(
        run,
        module,
        x,
        mask=_seen(module, x.tokens) if mask is None else mask,
        rotary=_rotary(module, x.tokens) if rotary is None else rotary,
    )


register(*LLAMA.named("DecoderLayer"), call=_call_llama)(bound_layer)


@register(*LLAMA.named("Model"), call=call_text)
def _llama(run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.explain("chain", "chain")
    cosine, sine = module.rotary_emb(
        torch.zeros(1, dtype=torch.float32, device=module.norm.weight.device),
        torch.arange(x.tokens, device=module.norm.weight.device)[None],
    )
    for index, layer in enumerate(module.layers[: module.config.num_hidden_layers]):
        seen = padded(_seen(layer, x.tokens), mask, x.tokens)
        x = run(layer, x, f"layers.{index}", mask=seen, rotary=(cosine[0], sine[0]))
    return run(module.norm, x, "norm")


@register(*LLAMA.named("ForCausalLM"), call=call_text)
def _llama_lm(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("chain", "chain")
    return run(module.lm_head, run(module.model, x, "model", mask=mask), "lm_head")
