"""Rules for what :mod:`taut.models` describes: attention, feed-forward maps, layers, RMSNorms.

Where a module keeps its maps, heads, scale and norms is known there; here is what they compute.
"""

from __future__ import annotations

from typing import Any

import torch

from taut.models import (
    ARCHITECTURES,
    AttentionMaps,
    LinearMap,
    at_path,
    controlled_attention,
    described_layer,
    find_attention,
    find_feed_forward,
    rms_norm,
)
from taut.networks.interpreter import Interpreter
from taut.networks.operations.attention_parameters import HeadNorm, Heads, Rotary
from taut.networks.operations.linear import Affine, affine
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.attention_functions import bound_function


def described_heads(module: Any, parent: Any = None) -> Heads:
    """The weights of an attention module; ``parent`` is the module around it."""
    found = find_attention(module, parent)
    if found is None or "query" not in found.maps:
        raise TypeError(f"this {type(module).__name__} does not keep its maps where its class does")
    query, key, value, output = (
        linear_affine(found.maps[role]) for role in ("query", "key", "value", "output")
    )
    query_norm, key_norm = _norms(found)
    return Heads(
        query, key, value, output, found.heads, found.key_heads, found.scale,
        query_norm=query_norm, key_norm=key_norm,
    )  # fmt: skip


def linear_affine(found: LinearMap) -> Affine:
    """Weight and bias of a map, which must be plainly linear."""
    if found.module is not None:
        affine(found.module)  # refuses what is not plainly linear
    return found.weight, found.bias


def _norms(found: AttentionMaps) -> list[HeadNorm | None]:
    described = [None if norm is None else rms_norm(norm) for norm in found.norms]
    if any(a is not None and b is None for a, b in zip(found.norms, described, strict=True)):
        raise TypeError(f"no rule for the norms of the queries in {type(found.module).__name__}")
    return [None if each is None else HeadNorm(*each) for each in described]


def steady(run: Interpreter, module: Any, dropouts: tuple[str, ...]) -> None:
    """Refuse a module that drops entries at random."""
    for path in dropouts:
        probability = at_path(module, path) or 0.0
        run.steady(module, probability)
        holder = at_path(module, path.rpartition(".")[0]) if "." in path else None
        if holder is not None:
            run.steady(holder, probability)


def bound_attention(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    rotary: Rotary | None = None,
    parent: Any = None,
    name: str = "",
) -> Region:
    """Bound an attention module, with its output map."""
    found = find_attention(module, parent)
    steady(run, module, () if found is None else found.description.dropouts)
    heads = described_heads(module, parent)
    given: dict[str, Any] = {"name": name} if name else {}
    return bound_function(
        run, x, heads, controlled_attention(module),
        context=context, mask=mask, bias=bias, rotary=rotary, **given,
    )  # fmt: skip


def bound_feed_forward(run: Interpreter, module: Any, x: Region) -> Region:
    """Bound the feed-forward maps of a module, plain or gated."""
    found = find_feed_forward(module)
    if found is None:
        raise TypeError(f"this {type(module).__name__} does not keep its maps where its class does")
    steady(run, module, found.description.dropouts)
    maps = {role: linear_affine(each) for role, each in found.maps.items()}
    label = found.description.label
    if "gate" in maps:
        gate, first, second = maps["gate"], maps["first"], maps["second"]
        return run.gated(x, gate, found.activation, first, second, label)
    return run.mlp(x, maps["first"], found.activation, maps["second"], label)


def bound_layer(
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region | None = None,
    context_mask: torch.Tensor | None = None,
    **inputs: Any,
) -> Region:
    """Bound a layer branch by branch; ``inputs`` go to its self-attention."""
    described = described_layer(module)
    assert described is not None
    run.explain("residuals" if described.norm_first else "residuals, each then a norm", "chain")
    steady(run, module, described.dropouts)

    def child(name: str, y: Region, **given: Any) -> Region:
        return run(at_path(module, name), y, name, **given)

    for branch in described.branches:
        y = child(branch.norm, x) if described.norm_first else x
        if branch.kind == "self":
            y = child(branch.part, y, **inputs)
        elif branch.kind == "cross":
            y = child(branch.part, y, context=context, mask=context_mask)
        else:
            y = child(branch.part, y) if branch.part else bound_feed_forward(run, module, y)
        for name in branch.then:
            y = child(name, y)
        x = run.add(x, y) if branch.residual else y
        if branch.norm and not described.norm_first:
            x = child(branch.norm, x)
    return x


def _feed_forward_classes() -> list[str]:
    """Feed-forward modules by themselves; others are parts of layers."""
    known = [family for family in ARCHITECTURES if family.models]
    inline = {name for family in known for each in family.layers for name in each.classes}
    return [
        name
        for family in known
        for each in family.feed_forward
        for name in each.classes
        if name not in inline
    ]


@register(*_feed_forward_classes())
def _feed_forward(run: Interpreter, module: Any, x: Region) -> Region:
    run.explain("feed-forward maps", "chain")
    return bound_feed_forward(run, module, x)


@register(*(n for family in ARCHITECTURES for norm in family.rms_norms for n in norm.classes))
def _rms_norm(run: Interpreter, module: Any, x: Region) -> Region:
    described = rms_norm(module)
    assert described is not None
    gain, epsilon = described
    return run.normalise(x, gain, None, epsilon, centred=False)
