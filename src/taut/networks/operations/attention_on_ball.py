"""Attention on all tokens of bounded length (theorem attn-core)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from taut._base.attention_weight_limits import heaviest_biased_column, heaviest_column
from taut._base.rounding import Numbers, down, hypotenuse, number, over, plus, root, times
from taut.networks.operations.attention_parameters import (
    AttentionConstants,
    AttentionInputs,
    Heads,
    ProjectionNorms,
)
from taut.networks.operations.attention_projections import limited, stretch
from taut.networks.operations.setting import Setting
from taut.networks.region import Region


def attention_on_ball(run: Setting, given: AttentionInputs) -> AttentionConstants:
    """Constants before the output projection, from the lengths of the tokens."""
    x, y, heads, known, mask, bias, rotary = given
    far, long = y.length[:, None], x.length[:, None]
    q = plus(times(known.queries, long), known.query_biases)
    # Without cap, rotations or norm a bias of the keys adds the same to all scores of a query.
    turning = rotary is not None or heads.softcap is not None or heads.key_norm is not None
    k = plus(times(known.keys, far), known.key_biases if turning else 0.0)
    nq, q = limited(heads.query_norm, q, heads.width)
    nk, k = limited(heads.key_norm, k, heads.width)
    turn = 1.0 if rotary is None else stretch(rotary)
    nq, nk, q, k = (times(turn, value) for value in (nq, nk, q, k))
    v = times(known.values, far)  # without a norm the bias of the values moves them all alike
    size = plus(v, known.value_biases)
    nv, size = limited(heads.value_norm, size, heads.value_width)
    v = v if heads.value_norm is None else size
    v, k = (np.repeat(value, heads.group, axis=1) for value in (v, k))
    longest = times(root(heads.group), _lengths(size))
    lever = times(heads.scale, q)
    apart = times(2.0, lever, k)
    if y.tokens == 1:  # nothing to choose from: values and scores of one key do not differ
        v, apart = np.zeros_like(v), np.zeros_like(apart)
    apart = apart if heads.softcap is None else np.minimum(apart, 2 * heads.softcap)
    query = times(times(heads.scale, v, k).max(axis=1), known.query, nq)
    energy = times(lever, v)
    context = [
        _tokens(energy[b], heads, known, float(nk[b]), float(nv[b]))
        if run.norm == "token"
        else _columns(
            x,
            y,
            heads,
            known,
            (energy[b], apart[b], float(nk[b]), float(nv[b])),
            None if mask is None else mask[b],
            bias,
        )
        for b in range(len(energy))
    ]
    return AttentionConstants(query, number(context), longest, nq, nk, nv)


def _lengths(size: Numbers) -> Numbers:
    return number([hypotenuse(*row) for row in size])


def _tokens(energy: Numbers, heads: Heads, known: ProjectionNorms, nk: float, nv: float) -> float:
    v, k = (np.repeat(part, heads.group) for part in (known.values, known.keys))
    return float(hypotenuse(*plus(times(v, nv), times(energy, k, nk))))


def _columns(
    x: Region,
    y: Region,
    heads: Heads,
    known: ProjectionNorms,
    sizes: tuple[Numbers, Numbers, float, float],
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> float:
    """Constant in keys and values, from the largest energy and oscillation of all heads."""
    energy, apart, nk, nv = sizes
    if not (np.isfinite(energy).all() and np.isfinite(apart).all()):
        return math.inf
    power = times(energy.max(), energy.max())
    many = root(heads.group)
    column = heaviest(x, y, float(apart.max()), mask, bias)

    def weighed(energy: Any, plain: float) -> float:
        return times(many, root(column(float(energy), plain)))

    flat, keyed = weighed(0.0, 1.0), weighed(power, 0.0)
    share = over(nk, down(nv * known.ratio))
    joint = weighed(times(power, share, share), 1.0)
    separate = plus(times(flat, known.value, nv), times(keyed, known.key, nk))
    return float(min(separate, times(joint, known.both, nv)))


def heaviest(
    x: Region, y: Region, apart: float, mask: torch.Tensor | None, bias: torch.Tensor | None
) -> Callable[[float, float], float]:
    """The heaviest column of all heads, from an energy and what is counted without it."""
    ones = np.ones((1, 1 if bias is None else x.tokens, y.tokens), dtype=bool)
    masks = ones if mask is None else mask.cpu().numpy()
    if bias is not None:
        values = bias.detach().double().reshape(-1, *bias.shape[-2:]).cpu().numpy()
        return lambda energy, plain: heaviest_biased_column(
            values, masks, energy, apart, plain=plain
        )
    copies = x.tokens if mask is None else 1  # without a mask one row stands for all
    return lambda energy, plain: max(
        heaviest_column(seen, energy, np.full(len(seen), apart), plain=plain, copies=copies)
        for seen in masks
    )
