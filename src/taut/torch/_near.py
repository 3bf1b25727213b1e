"""Attention at given tokens, or near them (theorem attn-core)."""

from __future__ import annotations

import math

import numpy as np
import torch

from taut.torch._core import Near, Row, head, stacked, sure
from taut.torch._frame import Frame
from taut.torch._heads import Heads, Norms, Part
from taut.torch._numbers import plus, times
from taut.torch._projection import Rotary, additive, projected
from taut.torch._region import CENTRE, Region


def near(
    run: Frame,
    x: Region,
    y: Region,
    heads: Heads,
    known: Norms,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    rotary: Rotary | None,
) -> tuple[Part, torch.Tensor]:
    """Constants before the output projection, one for each sample, and the centre of the output."""
    q, nq = projected(run, x, heads.query, heads.heads, heads.query_norm, rotary, known.queries)
    k, nk = projected(run, y, heads.key, heads.kv_heads, heads.key_norm, rotary, known.keys)
    v, _ = projected(run, y, heads.value, heads.kv_heads, None, None, known.values)
    batch, n, m = len(q), q.shape[2], k.shape[2]
    fixed = additive(run, mask, bias, (batch, heads.heads, n, m))
    found = Part(np.zeros(batch), np.zeros(batch), np.zeros(batch))
    outputs: list[torch.Tensor] = []
    for b in range(batch):
        rows = []
        for h in range(heads.heads):
            g = h // heads.group
            away = Near(
                float(times(known.queries[h], nq[b], x.radius[b])),
                float(times(known.keys[g], nk[b], y.radius[b])),
                float(times(known.values[g], y.radius[b])),
            )
            row, output = head(
                q[b, h], k[b, g], v[b, g], heads.scale, heads.softcap,
                None if fixed is None else fixed[b, h], away, dry=run.dry,
            )  # fmt: skip
            rows.append(row)
            outputs.append(output)
        if not run.dry:
            turn = max(float(row.turn.max()) for row in rows)
            found.query[b] = times(CENTRE, turn, known.query, nq[b])
            combine = _of_tokens if run.norm == "token" else _of_columns
            found.context[b] = times(CENTRE, combine(rows, heads, known, float(nk[b])))
        longest = v[b].detach().norm(dim=-1).amax(dim=1).cpu().numpy() * (1 + 1e-13)
        longest = plus(longest, times(known.values, y.radius[b]))
        with np.errstate(over="ignore"):
            found.longest[b] = math.sqrt(heads.group) * np.sqrt((longest**2).sum()) * (1 + 1e-13)
    merged = torch.stack(outputs).reshape(batch, heads.heads, n, -1).transpose(1, 2).flatten(2)
    if heads.output is not None:
        merged = merged @ run.tensor(heads.output[0]).mT
        if heads.output[1] is not None:
            merged = merged + run.tensor(heads.output[1])
    return found, merged


def _of_columns(rows: list[Row], heads: Heads, known: Norms, nk: float) -> float:
    """In l2: the worst key of the worst group of heads that share keys and values."""
    flat = keyed = joint = 0.0
    for g in range(heads.kv_heads):
        group = rows[g * heads.group : (g + 1) * heads.group]
        energy = torch.stack([row.energy @ row.weights for row in group]).sum(dim=0)
        energy = sure(energy)
        columns = torch.stack([row.weights.sum(dim=0) for row in group]).sum(dim=0)
        flat = max(flat, stacked([row.weights for row in group]))
        keyed = max(keyed, float(energy.max()))
        share = nk / known.ratio
        joint = max(joint, float(sure(columns + energy * (share * share)).max()))
    # Sums of so many terms ≥ 0 err by less than this.
    slack = 1 + 2.0**-50 * (rows[0].weights.shape[0] + heads.heads)
    apart = plus(times(flat, known.value), times(math.sqrt(keyed) * slack, known.key, nk))
    return float(min(apart, times(math.sqrt(joint) * slack, known.both)))


def _of_tokens(rows: list[Row], heads: Heads, known: Norms, nk: float) -> float:
    """In the largest token: each head by itself, since heads may look at different tokens."""
    total = torch.zeros_like(rows[0].energy)
    for h, row in enumerate(rows):
        g = h // heads.group
        total = total + (known.values[g] + row.energy.sqrt() * (known.keys[g] * nk)) ** 2
    return math.sqrt(float(sure(total).max())) * (1 + 2.0**-50 * (heads.heads + 8))
