"""Attention at given tokens, or near them (theorem attn-core)."""

from __future__ import annotations

import math

import numpy as np
import torch

from taut._base.rounding import down, enlarged, hypotenuse, over, plus, root, times
from taut.networks.operations.attention_mask import score_term
from taut.networks.operations.attention_one_head import Distances, HeadConstants, one_head
from taut.networks.operations.attention_parameters import (
    AttentionConstants,
    AttentionInputs,
    Heads,
    ProjectionNorms,
)
from taut.networks.operations.attention_projections import (
    HeadProjection,
    Projected,
    projected,
)
from taut.networks.operations.covariance_norm import stacked, sure
from taut.networks.operations.linear import applied
from taut.networks.operations.setting import Setting
from taut.networks.region import longest as longest_token


def attention_near_input(
    run: Setting, given: AttentionInputs
) -> tuple[AttentionConstants, torch.Tensor]:
    """Constants before the output projection, one for each sample, and the centre of the output.

    No query, key or value of the region is farther from the computed one than the constant of its
    projection times ``away``, and the rounding of the projection.
    """
    x, y, heads, norms = given.x, given.y, given.heads, given.norms
    q, k, v = _projections(run, given)
    batch, n, m = len(q.values), q.values.shape[2], k.values.shape[2]
    fixed = score_term(run, given.mask, given.bias, (batch, heads.heads, n, m))
    query, context, longest = (np.zeros(batch) for _ in range(3))
    outputs: list[torch.Tensor] = []
    for b in range(batch):
        rows = []
        for h in range(heads.heads):
            g = h // heads.group
            away = Distances(
                float(plus(times(norms.queries[h], q.gain[b], x.away[b]), q.error[b])),
                float(plus(times(norms.keys[g], k.gain[b], y.away[b]), k.error[b])),
                float(plus(times(norms.values[g], v.gain[b], y.away[b]), v.error[b])),
            )
            row, output = one_head(
                q.values[b, h], k.values[b, g], v.values[b, g], heads.scale, heads.softcap,
                None if fixed is None else fixed[b, h], away, dry=run.dry,
            )  # fmt: skip
            rows.append(row)
            outputs.append(output)
        if not run.dry:
            turn = max(float(row.turn.max()) for row in rows)
            query[b] = times(turn, norms.query, q.gain[b])
            combine = _of_tokens if run.norm == "token" else _of_columns
            context[b] = combine(rows, heads, norms, (float(k.gain[b]), float(v.gain[b])))
        moved = times(norms.values, v.gain[b], y.away[b])
        each = plus(longest_token(v.values[b]), moved, v.error[b])
        longest[b] = times(root(heads.group), hypotenuse(*each))
    merged = torch.stack(outputs).reshape(batch, heads.heads, n, -1).transpose(1, 2).flatten(2)
    if heads.output is not None:
        merged = applied(run, heads.output, merged)
    return AttentionConstants(query, context, longest, q.gain, k.gain, v.gain), merged


def _projections(run: Setting, given: AttentionInputs) -> tuple[Projected, Projected, Projected]:
    """Queries, keys and values of the centre."""
    heads, norms = given.heads, given.norms
    query = HeadProjection(
        heads.query, heads.heads, norms.queries, norms.query_size,
        float(norms.query_biases.max()), heads.query_norm, given.rotary,
    )  # fmt: skip
    key = HeadProjection(
        heads.key, heads.kv_heads, norms.keys, norms.key_size,
        float(norms.key_biases.max()), heads.key_norm, given.rotary,
    )  # fmt: skip
    value = HeadProjection(
        heads.value, heads.kv_heads, norms.values, norms.value_size, norms.value_bias,
        heads.value_norm,
    )  # fmt: skip
    return (
        projected(run, given.x, query),
        projected(run, given.y, key),
        projected(run, given.y, value),
    )


def _of_columns(
    rows: list[HeadConstants], heads: Heads, norms: ProjectionNorms, gains: tuple[float, float]
) -> float:
    """In l2: the worst key of the worst group of heads that share keys and values."""
    nk, nv = gains
    flat = keyed = joint = 0.0
    for g in range(heads.kv_heads):
        group = rows[g * heads.group : (g + 1) * heads.group]
        energy = torch.stack([row.energy @ row.weights for row in group]).sum(dim=0)
        energy = sure(energy)
        columns = torch.stack([row.weights.sum(dim=0) for row in group]).sum(dim=0)
        flat = max(flat, stacked([row.weights for row in group]))
        keyed = max(keyed, float(energy.max()))
        share = over(nk, down(nv * norms.ratio))
        joint = max(joint, float(sure(columns + energy * (share * share)).max()))
    units = 4 * (
        rows[0].weights.shape[0] + heads.heads + 8
    )  # sums of so many terms ≥ 0 err by less
    keyed, joint = (enlarged(math.sqrt(total), units) for total in (keyed, joint))
    apart = plus(times(flat, norms.value, nv), times(keyed, norms.key, nk))
    return min(apart, times(joint, norms.both, nv))


def _of_tokens(
    rows: list[HeadConstants], heads: Heads, norms: ProjectionNorms, gains: tuple[float, float]
) -> float:
    """In the largest token: each head by itself, since heads may look at different tokens."""
    nk, nv = gains
    total = torch.zeros_like(rows[0].energy)
    for h, row in enumerate(rows):
        g = h // heads.group
        total = total + (norms.values[g] * nv + row.energy.sqrt() * (norms.keys[g] * nk)) ** 2
    return enlarged(math.sqrt(float(sure(total).max())), 4 * (heads.heads + 8))
