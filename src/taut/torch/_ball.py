"""Attention on all tokens of bounded length (theorem attn-core)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from taut.attention._limits import heaviest_column
from taut.torch._frame import Frame
from taut.torch._heads import Heads, Norms, Part
from taut.torch._numbers import Numbers, hypotenuse, number, plus, root, times
from taut.torch._projection import Rotary, limited, stretch
from taut.torch._region import Region


def ball(
    run: Frame,
    x: Region,
    y: Region,
    heads: Heads,
    known: Norms,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    rotary: Rotary | None,
) -> Part:
    """Constants before the output projection, from the lengths of the tokens."""
    far, long = y.length[:, None], x.length[:, None]
    q = plus(times(known.queries, long), known.query_biases)
    # Without cap, rotations or norm a bias of the keys adds the same to all scores of a query.
    turning = rotary is not None or heads.softcap is not None or heads.key_norm is not None
    k = plus(times(known.keys, far), known.key_biases if turning else 0.0)
    nq, q = limited(heads.query_norm, q, heads.width)
    nk, k = limited(heads.key_norm, k, heads.width)
    turn = 1.0 if rotary is None else stretch(rotary)
    nq, nk, q, k = (times(turn, value) for value in (nq, nk, q, k))
    v, k = (np.repeat(value, heads.group, axis=1) for value in (times(known.values, far), k))
    size = plus(times(known.values, far), known.value_biases)
    longest = times(math.sqrt(heads.group) * (1 + 1e-15), _lengths(size))
    lever = times(heads.scale, q)
    apart = times(2.0, lever, k)
    apart = apart if heads.softcap is None else np.minimum(apart, 2 * heads.softcap)
    query = times(times(heads.scale, v, k).max(axis=1), known.query, nq)
    energy = times(lever, v)
    context = [
        _tokens(energy[b], heads, known, float(nk[b]))
        if run.norm == "token"
        else _columns(
            x, y, heads, known, (energy[b], apart[b], float(nk[b])), _of(mask, b, len(energy)), bias
        )
        for b in range(len(energy))
    ]
    return Part(query, number(context), longest)


def _of(mask: torch.Tensor | None, sample: int, batch: int) -> torch.Tensor | None:
    """The mask of one sample."""
    if mask is None:
        return None
    flat = mask.reshape(-1, *mask.shape[-2:])
    if len(flat) not in (1, batch):
        raise ValueError(
            f"a mask for {len(flat)} samples does not fit {batch}: a domain of all inputs takes one"
        )
    return flat[sample if len(flat) > 1 else 0]


def _lengths(size: Numbers) -> Numbers:
    return number([hypotenuse(*row) for row in size])


def _tokens(energy: Numbers, heads: Heads, known: Norms, nk: float) -> float:
    v, k = (np.repeat(part, heads.group) for part in (known.values, known.keys))
    return float(hypotenuse(*plus(v, times(energy, k, nk))))


def _columns(
    x: Region,
    y: Region,
    heads: Heads,
    known: Norms,
    sizes: tuple[Numbers, Numbers, float],
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> float:
    """Constant in keys and values, from the largest energy and oscillation of all heads."""
    energy, apart, nk = sizes
    if not (np.isfinite(energy).all() and np.isfinite(apart).all()):
        return math.inf
    seen, osc, copies = _seen(x, y, float(apart.max()), mask, bias)
    power = times(energy.max(), energy.max())
    many = math.sqrt(heads.group) * (1 + 1e-15)

    def heaviest(energy: Any, plain: float) -> Numbers:
        found = heaviest_column(seen, float(energy), osc, plain=plain, copies=copies)
        return times(many, root(found))

    flat, keyed = heaviest(0.0, 1.0), heaviest(power, 0.0)
    share = nk / known.ratio * (1 + 1e-15)
    joint = heaviest(times(power, share, share), 1.0)
    separate = plus(times(flat, known.value), times(keyed, known.key, nk))
    return float(min(separate, times(joint, known.both)))


def _seen(
    x: Region, y: Region, apart: float, mask: torch.Tensor | None, bias: torch.Tensor | None
) -> tuple[Any, Numbers, int]:
    """What queries see, how far apart their scores can be, and how often each row occurs."""
    if mask is None and bias is None:
        return np.ones((1, y.tokens), dtype=bool), np.full(1, apart), x.tokens
    seen = np.ones((x.tokens, y.tokens), dtype=bool)
    if mask is not None:
        seen = mask.cpu().numpy()
    osc = np.full(len(seen), apart)
    if bias is not None:
        values = bias.detach().double().reshape(-1, *bias.shape[-2:]).cpu().numpy()
        high = np.where(seen, values, -np.inf).max(axis=2)
        low = np.where(seen, values, np.inf).min(axis=2)
        osc = plus(osc, ((high - low) * (1 + 1e-15)).max(axis=0))
    return seen, osc, 1
