"""Rules for the modules of torch.nn."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from taut.torch._activations import activation_of
from taut.torch._heads import Heads
from taut.torch._mlp import affine
from taut.torch._numbers import over
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run

_POINTWISE = (
    nn.ReLU, nn.ReLU6, nn.Tanh, nn.Hardtanh, nn.Softsign, nn.Softshrink, nn.Tanhshrink, nn.Softplus,
    nn.LogSigmoid, nn.CELU, nn.Sigmoid, nn.Hardsigmoid, nn.Hardswish, nn.SELU, nn.SiLU, nn.Mish,
    nn.GELU, nn.LeakyReLU, nn.ELU, nn.RReLU,
)  # fmt: skip


@register(nn.Linear)
def _linear(run: Run, module: nn.Linear, x: Region) -> Region:
    return run.linear(x, module.weight, module.bias)


@register(nn.Identity, nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout)
def _nothing(run: Run, module: nn.Module, x: Region) -> Region:
    run.steady(module, getattr(module, "p", 0.0))
    run.note(None, "", "identity", (), 1.0)
    return x


@register(nn.Sequential)
def _sequential(run: Run, module: nn.Sequential, x: Region) -> Region:
    run.note(None, "", "chain", (), 1.0)
    for name, child in module._modules.items():  # children would name a shared module once
        x = run(child, x, name)
    return x


@register(*_POINTWISE)
def _pointwise(run: Run, module: nn.Module, x: Region) -> Region:
    return run.activation(x, module)


@register(nn.PReLU)
def _prelu(run: Run, module: nn.PReLU, x: Region) -> Region:
    if module.num_parameters != 1:
        raise TypeError("PReLU with several slopes takes channels, not tokens; use one slope")
    return run.activation(x, module)


@register(nn.LayerNorm)
def _layer_norm(run: Run, module: nn.LayerNorm, x: Region) -> Region:
    _last_only(module, x)
    return run.normalise(x, module.weight, module.bias, module.eps, centred=True)


@register(nn.RMSNorm)
def _rms_norm(run: Run, module: nn.RMSNorm, x: Region) -> Region:
    _last_only(module, x)
    epsilon = module.eps
    if epsilon is None:  # torch then takes that of the type it computes in
        if module.weight is None:
            raise ValueError("RMSNorm without eps and weight depends on its input: give it an eps")
        wide = module.weight.dtype if module.weight.dtype == torch.float64 else torch.float32
        epsilon = torch.finfo(wide).eps
    return run.normalise(x, module.weight, None, epsilon, centred=False)


def _last_only(module: Any, x: Region) -> None:
    if tuple(module.normalized_shape) != (x.width,):
        raise ValueError(
            f"{type(module).__name__} normalises {tuple(module.normalized_shape)}; a rule exists "
            f"for tokens of their full width, here {x.width}"
        )


@register(nn.Softmax)
def _softmax(run: Run, module: nn.Softmax, x: Region) -> Region:
    run.tokens_only(x)
    if module.dim != -1:
        raise ValueError("a rule exists for softmax along the width of tokens (dim=-1) only")
    run.note(None, "", "softmax is 1/2-Lipschitz", ("softmax-lp",), 0.5)
    centre = None if x.centre is None else torch.softmax(x.centre, dim=-1)
    return x.moved(centre, 0.5, 1.0, run.rounding(x, 1.0, x.width + 8), x.width)


@register(nn.AdaptiveAvgPool1d)
def _average(run: Run, module: nn.AdaptiveAvgPool1d, x: Region) -> Region:
    run.tokens_only(x)
    size = module.output_size[0] if isinstance(module.output_size, tuple) else module.output_size
    if size != 1:
        raise ValueError("a rule exists for AdaptiveAvgPool1d(1), the mean over the width, only")
    constant = over(1.0, math.sqrt(x.width) * (1 - 1e-15))
    run.note(None, "", "mean over the width", (), constant)
    centre = None if x.centre is None else x.centre.mean(dim=-1, keepdim=True)
    return x.moved(centre, constant, x.length, run.rounding(x, x.length, x.width + 1), 1)


@register(nn.AdaptiveMaxPool1d)
def _largest(run: Run, module: nn.AdaptiveMaxPool1d, x: Region) -> Region:
    run.tokens_only(x)
    size = module.output_size[0] if isinstance(module.output_size, tuple) else module.output_size
    if size != 1 or module.return_indices:
        raise ValueError("a rule exists for AdaptiveMaxPool1d(1), the largest number, only")
    run.note(None, "", "largest over the width", (), 1.0)
    centre = None if x.centre is None else x.centre.amax(dim=-1, keepdim=True)
    return x.moved(centre, 1.0, x.length, 0.0, 1)


def heads_of(module: nn.MultiheadAttention) -> Heads:
    """The weights of torch's attention module."""
    if module.bias_k is not None or module.add_zero_attn:
        raise TypeError("no rule for MultiheadAttention with add_bias_kv or add_zero_attn")
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    query, key, value = zip(weights, biases, strict=True)
    scale = 1 / math.sqrt(module.head_dim)
    output = (module.out_proj.weight, module.out_proj.bias)
    return Heads(query, key, value, output, module.num_heads, module.num_heads, scale)


def _call_attention(
    module: nn.MultiheadAttention, x: Any, *, context: Any = None, mask: Any = None
) -> Any:
    y = x if context is None else context
    if not module.batch_first:
        x, y = x.transpose(0, 1), y.transpose(0, 1)
    found = module(x, y, y, attn_mask=_hidden(mask, module), need_weights=False)[0]
    return found if module.batch_first else found.transpose(0, 1)


@register(nn.MultiheadAttention, call=_call_attention)
def _attention(
    run: Run,
    module: nn.MultiheadAttention,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
) -> Region:
    run.steady(module, module.dropout)
    return run.attention(x, heads_of(module), context=context, mask=mask)


def _call_encoder(module: nn.Module, x: Any, *, mask: Any = None) -> Any:
    first = _first_attention(module)
    x = x if first.batch_first else x.transpose(0, 1)
    found = module(x, _hidden(mask, first))
    return found if first.batch_first else found.transpose(0, 1)


def _call_decoder(
    module: nn.Module, x: Any, *, context: Any, mask: Any = None, context_mask: Any = None
) -> Any:
    first = _first_attention(module)
    if not first.batch_first:
        x, context = x.transpose(0, 1), context.transpose(0, 1)
    masks = [_hidden(m, first) for m in (mask, context_mask)]
    found = module(x, context, tgt_mask=masks[0], memory_mask=masks[1])
    return found if first.batch_first else found.transpose(0, 1)


def _hidden(mask: torch.Tensor | None, module: nn.MultiheadAttention) -> torch.Tensor | None:
    """What torch wants: True where nothing is seen, and masks of a batch once for each head."""
    if mask is None:
        return None
    return ~mask.repeat_interleave(module.num_heads, dim=0) if mask.ndim == 3 else ~mask


def _first_attention(module: nn.Module) -> nn.MultiheadAttention:
    return next(m for m in module.modules() if isinstance(m, nn.MultiheadAttention))


@register(nn.TransformerEncoderLayer, call=_call_encoder)
def _encoder_layer(
    run: Run, module: nn.TransformerEncoderLayer, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.note(None, "", "residuals", ("chain",), 1.0)
    if module.norm_first:
        y = run(module.self_attn, run(module.norm1, x, "norm1"), "self_attn", mask=mask)
        x = run.add(x, run(module.dropout1, y, "dropout1"))
        return run.add(x, _feed_forward(run, module, run(module.norm2, x, "norm2"), "dropout2"))
    y = run(module.self_attn, x, "self_attn", mask=mask)
    x = run(module.norm1, run.add(x, run(module.dropout1, y, "dropout1")), "norm1")
    return run(module.norm2, run.add(x, _feed_forward(run, module, x, "dropout2")), "norm2")


@register(nn.TransformerDecoderLayer, call=_call_decoder)
def _decoder_layer(
    run: Run,
    module: nn.TransformerDecoderLayer,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.note(None, "", "residuals", ("chain",), 1.0)

    def itself(z: Region) -> Region:
        return run(module.dropout1, run(module.self_attn, z, "self_attn", mask=mask), "dropout1")

    def across(z: Region) -> Region:
        y = run(module.multihead_attn, z, "multihead_attn", context=context, mask=context_mask)
        return run(module.dropout2, y, "dropout2")

    def forward(z: Region) -> Region:
        return _feed_forward(run, module, z, "dropout3")

    for part, name in ((itself, "norm1"), (across, "norm2"), (forward, "norm3")):
        norm = getattr(module, name)
        if module.norm_first:
            x = run.add(x, part(run(norm, x, name)))
        else:
            x = run(norm, run.add(x, part(x)), name)
    return x


def _feed_forward(run: Run, module: Any, x: Region, last: str) -> Region:
    run.steady(module.dropout, module.dropout.p)
    act = activation_of(module.activation)
    y = run.mlp(
        x,
        affine(module.linear1),
        act or module.activation,
        affine(module.linear2),
        "linear1+linear2",
    )
    return run(getattr(module, last), y, last)


@register(nn.TransformerEncoder, call=_call_encoder)
def _encoder(
    run: Run, module: nn.TransformerEncoder, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", mask=mask)
    return x if module.norm is None else run(module.norm, x, "norm")


@register(nn.TransformerDecoder, call=_call_decoder)
def _decoder(
    run: Run, module: nn.TransformerDecoder, x: Region, *, context: Region, **masks: Any
) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", context=context, **masks)
    return x if module.norm is None else run(module.norm, x, "norm")


def _call_transformer(
    module: nn.Transformer, x: Any, *, context: Any, mask: Any = None, context_mask: Any = None
) -> Any:
    if not module.batch_first:
        x, context = x.transpose(0, 1), context.transpose(0, 1)
    first = _first_attention(module)
    masks = [_hidden(m, first) for m in (mask, context_mask)]
    found = module(context, x, tgt_mask=masks[0], memory_mask=masks[1])
    return found if module.batch_first else found.transpose(0, 1)


@register(nn.Transformer, call=_call_transformer)
def _transformer(
    run: Run, module: nn.Transformer, x: Region, *, context: Region, **masks: Any
) -> Region:
    run.note(None, "", "encoder into decoder", ("chain",), 1.0)
    memory = run(module.encoder, context, "encoder")
    return run(module.decoder, x, "decoder", context=memory, **masks)
