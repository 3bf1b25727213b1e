"""Rules for decoders: GPT-2, Llama, Mistral, Qwen."""

from __future__ import annotations

from typing import Any

import torch

from taut.torch._heads import HeadNorm, Heads
from taut.torch._hf import (
    additive,
    call_text,
    config_of,
    named,
    neighbour,
    padded,
    sees,
    window_of,
)  # fmt: skip
from taut.torch._mlp import Affine, affine
from taut.torch._projection import Rotary
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run

_LLAMAS = (("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3"))


def _llamas(*names: str) -> tuple[str, ...]:
    return tuple(n for family, kind in _LLAMAS for n in named(family, *(kind + x for x in names)))


def _thirds(map_: Affine) -> list[Affine]:
    """Queries, keys and values of a fused projection."""
    weight, bias = map_
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return list(zip(weight.chunk(3), biases, strict=True))


def _call_gpt2(module: Any, x: Any, *, mask: Any = None) -> Any:
    seen = mask if mask is not None else sees(x.shape[1], causal=True)
    return module(x, attention_mask=None if seen is None else additive(seen, x))


@register(*named("gpt2", "GPT2Attention"), call=_call_gpt2)
def _gpt2_attention(
    run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    if module.is_cross_attention:
        raise TypeError("no rule for GPT-2 with cross-attention")
    run.steady(module, module.attn_dropout.p)
    run.steady(module.resid_dropout, module.resid_dropout.p)
    query, key, value = _thirds(affine(module.c_attn))
    output = affine(module.c_proj)
    heads = Heads(query, key, value, output, module.num_heads, module.num_heads, module.scaling)
    return run.attention(x, heads, mask=sees(x.tokens, causal=True) if mask is None else mask)


@register(*named("gpt2", "GPT2MLP"))
def _gpt2_mlp(run: Run, module: Any, x: Region) -> Region:
    run.note(None, "", "mlp", ("chain",), 1.0)
    run.steady(module.dropout, module.dropout.p)
    return run.mlp(x, affine(module.c_fc), module.act, affine(module.c_proj), "c_fc+c_proj")


@register(*named("gpt2", "GPT2Block"), call=_call_gpt2)
def _gpt2_block(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "residuals", ("chain",), 1.0)
    x = run.add(x, run(module.attn, run(module.ln_1, x, "ln_1"), "attn", mask=mask))
    return run.add(x, run(module.mlp, run(module.ln_2, x, "ln_2"), "mlp"))


@register(*named("gpt2", "GPT2Model"), call=call_text)
def _gpt2(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    x = run(module.drop, run.shift(x, module.wpe.weight[: x.tokens]), "drop")
    seen = padded(sees(x.tokens, causal=True), mask, x.tokens)
    for index, block in enumerate(module.h):
        x = run(block, x, f"h.{index}", mask=seen)
    return run(module.ln_f, x, "ln_f")


@register(*named("gpt2", "GPT2LMHeadModel"), call=call_text)
def _gpt2_lm(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
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
    fixed = None if seen is None else additive(seen, x)
    return module(x, attention_mask=fixed, position_embeddings=embedded)


def _seen(module: Any, tokens: int) -> torch.Tensor | None:
    attention = getattr(module, "self_attn", module)
    window = window_of(config_of(module), getattr(attention, "layer_idx", None))
    return sees(tokens, causal=True, window=window)


@register(*_llamas("Attention"), call=_call_llama)
def _llama_attention(
    run: Run,
    module: Any,
    x: Region,
    *,
    mask: torch.Tensor | None = None,
    rotary: Rotary | None = None,
) -> Region:
    run.steady(module, module.attention_dropout)
    heads = module.q_proj.weight.shape[0] // module.head_dim
    norms = [getattr(module, name, None) for name in ("q_norm", "k_norm")]
    query_norm, key_norm = (
        None if norm is None else HeadNorm(norm.weight, norm.variance_epsilon) for norm in norms
    )
    weights = Heads(
        affine(module.q_proj),
        affine(module.k_proj),
        affine(module.v_proj),
        affine(module.o_proj),
        heads,
        heads // module.num_key_value_groups,
        module.scaling,
        query_norm=query_norm,
        key_norm=key_norm,
    )
    return run.attention(
        x,
        weights,
        mask=_seen(module, x.tokens) if mask is None else mask,
        rotary=_rotary(module, x.tokens) if rotary is None else rotary,
    )


@register(*_llamas("MLP"))
def _llama_mlp(run: Run, module: Any, x: Region) -> Region:
    run.note(None, "", "gated mlp", ("chain",), 1.0)
    gate, up, down = (affine(getattr(module, f"{name}_proj")) for name in ("gate", "up", "down"))
    return run.gated(x, gate, module.act_fn, up, down, "gate*up+down")


@register(*_llamas("DecoderLayer"), call=_call_llama)
def _llama_layer(run: Run, module: Any, x: Region, **inputs: Any) -> Region:
    run.note(None, "", "residuals", ("chain",), 1.0)
    y = run(module.input_layernorm, x, "input_layernorm")
    x = run.add(x, run(module.self_attn, y, "self_attn", **inputs))
    y = run(module.post_attention_layernorm, x, "post_attention_layernorm")
    return run.add(x, run(module.mlp, y, "mlp"))


@register(*_llamas("Model"), call=call_text)
def _llama(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    cosine, sine = module.rotary_emb(
        torch.zeros(1, dtype=torch.float32, device=module.norm.weight.device),
        torch.arange(x.tokens, device=module.norm.weight.device)[None],
    )
    for index, layer in enumerate(module.layers[: module.config.num_hidden_layers]):
        seen = padded(_seen(layer, x.tokens), mask, x.tokens)
        x = run(layer, x, f"layers.{index}", mask=seen, rotary=(cosine[0], sine[0]))
    return run(module.norm, x, "norm")


@register(*_llamas("ForCausalLM"), call=call_text)
def _llama_lm(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    return run(module.lm_head, run(module.model, x, "model", mask=mask), "lm_head")
