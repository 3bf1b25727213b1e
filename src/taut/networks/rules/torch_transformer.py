"""Rules for the transformer layers and models of torch.nn."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.networks.interpreter import Interpreter
from taut.networks.operations.activation_slopes import activation_of
from taut.networks.operations.linear import affine
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.torch_attention import torch_mask


def _call_encoder(module: nn.Module, x: Any, *, mask: Any = None) -> Any:
    first = _first_attention(module)
    hidden = torch_mask(mask, first, x, x)
    found = module(x if first.batch_first else x.transpose(0, 1), hidden)
    return found if first.batch_first else found.transpose(0, 1)


def _call_decoder(
    module: nn.Module, x: Any, *, context: Any, mask: Any = None, context_mask: Any = None
) -> Any:
    first = _first_attention(module)
    itself, across = torch_mask(mask, first, x, x), torch_mask(context_mask, first, x, context)
    if not first.batch_first:
        x, context = x.transpose(0, 1), context.transpose(0, 1)
    found = module(x, context, tgt_mask=itself, memory_mask=across)
    return found if first.batch_first else found.transpose(0, 1)


def _first_attention(module: nn.Module) -> Any:
    """The attention of the first layer, or what has taken its place; all are made alike."""
    layer = next(m for m in module.modules() if hasattr(m, "self_attn"))
    return layer.self_attn


@register(nn.TransformerEncoderLayer, call=_call_encoder)
def _encoder_layer(
    run: Interpreter,
    module: nn.TransformerEncoderLayer,
    x: Region,
    *,
    mask: torch.Tensor | None = None,
) -> Region:
    run.explain("residuals", "chain")
    if module.norm_first:
        y = run(module.self_attn, run(module.norm1, x, "norm1"), "self_attn", mask=mask)
        x = run.add(x, run(module.dropout1, y, "dropout1"))
        return run.add(x, _feed_forward(run, module, run(module.norm2, x, "norm2"), "dropout2"))
    y = run(module.self_attn, x, "self_attn", mask=mask)
    x = run(module.norm1, run.add(x, run(module.dropout1, y, "dropout1")), "norm1")
    return run(module.norm2, run.add(x, _feed_forward(run, module, x, "dropout2")), "norm2")


@register(nn.TransformerDecoderLayer, call=_call_decoder)
def _decoder_layer(
    run: Interpreter,
    module: nn.TransformerDecoderLayer,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.explain("residuals", "chain")

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


def _feed_forward(run: Interpreter, module: Any, x: Region, last: str) -> Region:
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
    run: Interpreter, module: nn.TransformerEncoder, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("chain", "chain")
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", mask=mask)
    return x if module.norm is None else run(module.norm, x, "norm")


@register(nn.TransformerDecoder, call=_call_decoder)
def _decoder(
    run: Interpreter, module: nn.TransformerDecoder, x: Region, *, context: Region, **masks: Any
) -> Region:
    run.explain("chain", "chain")
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}", context=context, **masks)
    return x if module.norm is None else run(module.norm, x, "norm")


def _call_transformer(
    module: nn.Transformer, x: Any, *, context: Any, mask: Any = None, context_mask: Any = None
) -> Any:
    first = _first_attention(module)
    itself, across = torch_mask(mask, first, x, x), torch_mask(context_mask, first, x, context)
    if not module.batch_first:
        x, context = x.transpose(0, 1), context.transpose(0, 1)
    found = module(context, x, tgt_mask=itself, memory_mask=across)
    return found if module.batch_first else found.transpose(0, 1)


@register(nn.Transformer, call=_call_transformer)
def _transformer(
    run: Interpreter, module: nn.Transformer, x: Region, *, context: Region, **masks: Any
) -> Region:
    run.explain("encoder into decoder", "chain")
    memory = run(module.encoder, context, "encoder")
    return run(module.decoder, x, "decoder", context=memory, **masks)
