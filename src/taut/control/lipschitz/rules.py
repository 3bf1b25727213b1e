"""How a Lipschitz transformer is followed: rules of its modules for ``taut.networks``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.control.lipschitz.activation import MaxMin
from taut.control.lipschitz.attention import EPSILON, BoundedAttention
from taut.control.lipschitz.block import LipschitzBlock
from taut.control.lipschitz.embedding import PatchEmbedding, TokenBall
from taut.control.lipschitz.features import Features
from taut.control.lipschitz.norm import Centring
from taut.control.lipschitz.transformer import LipschitzTransformer
from taut.networks import DistanceHeads, HeadNorm, Heads, Interpreter, Region, register


@register(MaxMin)
def _max_min(run: Interpreter, module: MaxMin, x: Region) -> Region:
    return run.sort_pairs(x)


@register(BoundedAttention)
def _attention(run: Interpreter, module: BoundedAttention, x: Region) -> Region:
    mask, bias = module.visible(x.tokens), module.positions(x.tokens)
    if module.kind == "l2":
        distances = DistanceHeads(
            (module.query, None), None, (module.output, None), module.heads, module.scale
        )
        return run.distance_attention(x, distances, mask=mask, bias=bias)
    norm = None
    if module.kind == "cosine":
        norm = HeadNorm(
            module.query.new_full((module.head_width,), module.head_width**-0.5), EPSILON
        )
    heads = Heads(
        query=(module.query, None),
        key=(module.key, None),
        value=(module.value, None),
        output=(module.output, None),
        heads=module.heads,
        kv_heads=module.heads,
        scale=module.scale,
        query_norm=norm,
        key_norm=norm,
    )
    return run.attention(x, heads, mask=mask, bias=bias)


@register(Centring)
def _centring(run: Interpreter, module: Centring, x: Region) -> Region:
    return run.centre(x)


@register(LipschitzBlock)
def _block(run: Interpreter, module: LipschitzBlock, x: Region) -> Region:
    run.explain("averages", "chain", "averaged-mlp")
    share = float(module.attention_share)
    y = run(module.attention, run(module.norm, x, "norm"), "attention")
    x = run.average(x, y, 1 - share, share * float(module.attention_factor))
    share = float(module.mlp_share)
    kept, passed = 1 - share, share * module.mlp_factor
    first, second = (module.first, module.bias), (module.second, None)
    y = run(module.norm, x, "norm")
    if isinstance(module.activation, MaxMin):
        y = run(module.activation, run.linear(y, *first, "first"), "activation")
        x = run.average(x, run.linear(y, *second, "second"), kept, passed)
    elif isinstance(module.norm, nn.Identity):
        x = run.averaged_mlp(x, first, module.activation, second, kept, passed)
    else:
        x = run.average(x, run.mlp(y, first, module.activation, second), kept, passed)
    return x if module.ball is None else run(module.ball, x, "ball")


@register(TokenBall)
def _ball(run: Interpreter, module: TokenBall, x: Region) -> Region:
    return run.into_ball(x, module.reach)


@register(PatchEmbedding)
def _patches(run: Interpreter, module: PatchEmbedding, x: Region) -> Region:
    return run.shift(run.patches(x, module.weight, None), module.place[None])


def _call(module: LipschitzTransformer, x: Any) -> Any:
    return module(inputs_embeds=x) if module.text else module(x)


@register(LipschitzTransformer, call=_call)
def _transformer(run: Interpreter, module: LipschitzTransformer, x: Region) -> Region:
    run.explain("chain", "chain")
    x = _followed(run, module, x)
    return run.scale(run.linear(x, module.output, None, "output"), module.factor, "factor")


@register(Features)
def _features(run: Interpreter, module: Features, x: Region) -> Region:
    run.explain("chain", "chain")
    return _followed(run, module.model, x)


def _followed(run: Interpreter, module: LipschitzTransformer, x: Region) -> Region:
    """Everything before the output map."""
    if not module.text:
        x = run(module.embedding, x, "embedding")
    x = run(module.ball, x, "ball")
    for index, block in enumerate(module.blocks):
        x = run(block, x, f"blocks.{index}")
    if module.pool == "mean":
        x = run.mean(x, "mean")
    elif module.pool == "all":
        places = torch.arange(x.tokens * x.width)[None]
        x = run.rearrange(x, places, "side by side")
    if module.head is None:
        return x
    x = run.linear(x, module.head, module.head_bias, "head")
    return run(module.head_activation, x, "head_activation")
