"""Dot-product attention, or what taut.control puts in its place: cosine, L2, capped scores."""

from __future__ import annotations

from typing import Any

import torch

from taut.models import ControlledAttention
from taut.networks.interpreter import Interpreter
from taut.networks.operations.attention_parameters import Heads, unit_norm
from taut.networks.operations.distance_parameters import DistanceHeads
from taut.networks.region import Region


def cosine_heads(heads: Heads, *, nu: float, scale: float, epsilon: float) -> Heads:
    """Cosine attention: queries, keys and values u/√(‖u‖² + epsilon), the values times nu."""
    norm = unit_norm(heads.width, epsilon)
    return heads._replace(
        scale=scale,
        query_norm=norm,
        key_norm=norm,
        value_norm=unit_norm(heads.value_width, epsilon, nu),
    )


def capped_heads(heads: Heads, *, limit: float) -> Heads:
    """Scores s as c·tanh(s/limit): control computes them with c a little below the limit.

    c is limit·(1 − 4 eps) for the type of the scores, so this is a cap at c of scores that are
    multiplied by c/limit.
    """
    wide = heads.query[0].dtype == torch.float64
    below = 1 - 4 * torch.finfo(torch.float64 if wide else torch.float32).eps
    return heads._replace(scale=heads.scale * below, softcap=limit * below)


def distance_heads(heads: Heads) -> DistanceHeads:
    """L2 attention, which makes its keys from the queries."""
    assert heads.output is not None
    return DistanceHeads(heads.query, heads.value, heads.output, heads.heads)


def bound_function(
    run: Interpreter, x: Region, heads: Heads, found: ControlledAttention | None, **given: Any
) -> Region:
    """Attention with these weights, by the function that a module of transformers calls."""
    if found is None:
        return run.attention(x, heads, **given)
    special = [name for name in ("bias", "rotary") if given.get(name) is not None]
    if special:
        raise TypeError(f"no rule for {found.kind} attention with {' and '.join(special)}")
    if found.kind == "cosine":
        return run.attention(x, cosine_heads(heads, **found.options), **given)
    if found.kind == "soft-cap":
        return run.attention(x, capped_heads(heads, **found.options), **given)
    if given.pop("context") is not None:
        raise TypeError("no rule for L2 attention to another sequence: it has no constant")
    return run.distance_attention(
        x, distance_heads(heads), mask=given["mask"], name=given.get("name")
    )
