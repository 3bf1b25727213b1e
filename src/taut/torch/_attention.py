"""Attention modules: at given tokens, near to them, and for all tokens of bounded length."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from taut.attention._limits import heaviest_column
from taut.torch._core import Near, head, stacked
from taut.torch._frame import Frame
from taut.torch._heads import HeadNorm, Heads, Norms, norms
from taut.torch._mlp import Affine
from taut.torch._numbers import Numbers, hypotenuse, number, over, plus, root, times
from taut.torch._region import Region, reach
from taut.torch._spectral import largest, length

Rotary = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, (tokens, turned width)


class Part(NamedTuple):
    """Constants of attention before its output projection, one for each sample."""

    query: Numbers  # in the tokens that make queries
    context: Numbers  # in those that make keys and values
    longest: Numbers  # token of the output, before the projection


class AttentionMaps(Frame):
    """Multi-head attention."""

    def attention(
        self,
        x: Region,
        heads: Heads,
        *,
        context: Region | None = None,
        mask: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        rotary: Rotary | None = None,
        name: str | None = None,
    ) -> Region:
        """Dot-product attention (theorem attn-core).

        Parameters
        ----------
        x, context
            Tokens that queries are made of, and keys and values; the same if there is no context.
        heads
            The weights.
        mask
            True where a query (row) sees a key (column), (..., queries, keys).
        bias
            Fixed term of the scores, (..., heads, queries, keys).
        rotary
            Cosines and sines of rotary positions.
        name
            In the tree, if the attention is a part of a module.
        """
        y = x if context is None else context
        known = norms(heads)
        output = None
        if x.centre is None or y.centre is None:
            part = _ball(self, x, y, heads, known, mask, bias, rotary)
        else:
            part, output = _near(self, x, y, heads, known, mask, bias, rotary)
        query, other = times(known.output, part.query), times(known.output, part.context)
        constant = plus(query, other)
        rule = "for tokens of bounded length" if output is None else "covariances under the weights"
        self.note(name, "attention", rule, ("attn-core", "spectral"), constant)
        size = plus(times(known.output, part.longest), _bias(heads.output))
        radius = plus(times(x.radius, query), times(y.radius, other))
        return x.but(
            centre=output,
            width=heads.output[0].shape[0] if heads.output else heads.heads * _value_width(heads),
            radius=radius,
            length=size if output is None else reach(output, radius),
            lip=plus(times(x.lip, query), times(y.lip, other)),
            err=plus(
                times(x.err, query), times(y.err, other), _lost(self, x, y, heads, known, part)
            ),
        )


def _bias(map_: Affine | None) -> float:
    return 0.0 if map_ is None else length(map_[1])


def _value_width(heads: Heads) -> int:
    return heads.value[0].shape[0] // heads.kv_heads


def _lost(run: Frame, x: Region, y: Region, heads: Heads, known: Norms, part: Part) -> Numbers:
    """Rounding: scores (which move weights by twice their error), mean values, projection."""
    q = plus(times(known.query_size, x.length), length(heads.query[1]))
    k = plus(times(known.key_size, y.length), length(heads.key[1]))
    if heads.query_norm is not None:
        q = np.minimum(q, largest(heads.query_norm.gain) * math.sqrt(heads.width) * heads.heads)
    if heads.key_norm is not None:
        k = np.minimum(k, largest(heads.key_norm.gain) * math.sqrt(heads.width) * heads.heads)
    value = times(known.output, part.longest)
    scores = times(4 * heads.scale, q, k, value)
    return plus(
        run.rounding(x, scores, x.width + heads.width + 8),
        run.rounding(x, value, y.tokens + y.width + 8),
        run.rounding(x, times(known.output_size, part.longest), heads.heads * heads.width + 1),
    )


def _near(
    run: Frame,
    x: Region,
    y: Region,
    heads: Heads,
    known: Norms,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    rotary: Rotary | None,
) -> tuple[Part, torch.Tensor]:
    """Attention at or near the centres of both regions."""
    assert x.centre is not None
    assert y.centre is not None
    q, nq = _projected(run, x, heads.query, heads.heads, heads.query_norm, rotary, known.queries)
    k, nk = _projected(run, y, heads.key, heads.kv_heads, heads.key_norm, rotary, known.keys)
    v, _ = _projected(run, y, heads.value, heads.kv_heads, None, None, known.values)
    batch, n, m = len(q), q.shape[2], k.shape[2]
    fixed = additive(run, mask, bias, (batch, heads.heads, n, m))
    found = Part(np.zeros(batch), np.zeros(batch), np.zeros(batch))
    outputs = q.new_empty(batch, n, heads.heads, v.shape[-1])
    for b in range(batch):
        query = 0.0
        flat, keyed, joint = 0.0, 0.0, 0.0
        tokens = np.zeros(n)
        for g in range(heads.kv_heads):
            rows, energy = [], q.new_zeros(m)
            for h in range(g * heads.group, (g + 1) * heads.group):
                if run.dry:
                    outputs[b, :, h] = _plain(q[b, h], k[b, g], v[b, g], heads, fixed, b, h)
                    continue
                near = Near(
                    float(times(known.queries[h], nq[b], x.radius[b])),
                    float(times(known.keys[g], nk[b], y.radius[b])),
                    float(times(known.values[g], y.radius[b])),
                )
                row, outputs[b, :, h] = head(
                    q[b, h], k[b, g], v[b, g], heads.scale, heads.softcap,
                    None if fixed is None else fixed[b, h], near,
                )  # fmt: skip
                query = max(query, float(row.turn.max()))
                rows.append(row.weights)
                energy = energy + row.energy @ row.weights
                lever = known.values[g] + row.energy.sqrt().cpu().numpy() * known.keys[g] * nk[b]
                tokens += lever**2
            if not rows:
                continue
            columns = torch.stack(rows).sum(dim=(0, 1))
            flat = max(flat, stacked(rows))
            keyed = max(keyed, float(energy.max()) ** 0.5)
            joint = max(joint, float((columns + energy * (nk[b] / known.ratio) ** 2).max()) ** 0.5)
        found.query[b] = times(query, known.query, nq[b])
        if run.norm == "token":
            found.context[b] = tokens.max() ** 0.5 * (1 + 1e-14 * heads.heads)
        else:
            apart = plus(times(flat, known.value), times(keyed, known.key, nk[b]))
            together = times(joint * (1 + 1e-14 * (n + heads.heads)), known.both)
            found.context[b] = min(apart, together)
        long_v = v[b].norm(dim=-1).amax(dim=1).cpu().numpy() + known.values * y.radius[b]
        found.longest[b] = np.sqrt((long_v**2).sum() * heads.group) * (1 + 1e-12)
    merged = outputs.flatten(2)
    if heads.output is not None:
        merged = merged @ run.tensor(heads.output[0]).mT
        if heads.output[1] is not None:
            merged = merged + run.tensor(heads.output[1])
    return found, merged


def _plain(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: Heads,
    fixed: torch.Tensor | None, b: int, h: int,
) -> torch.Tensor:  # fmt: skip
    """The output of one head, without bounds."""
    scores = heads.scale * (q @ k.mT)
    if heads.softcap is not None:
        scores = heads.softcap * torch.tanh(scores / heads.softcap)
    scores = scores if fixed is None else scores + fixed[b, h]
    return torch.softmax(scores, dim=-1) @ v


def _projected(
    run: Frame,
    x: Region,
    map_: Affine,
    count: int,
    norm: HeadNorm | None,
    rotary: Rotary | None,
    weights: Numbers,
) -> tuple[torch.Tensor, Numbers]:
    """Queries, keys or values as (batch, heads, tokens, width), and the constant of what follows W."""
    assert x.centre is not None
    z = x.centre @ run.tensor(map_[0]).mT
    z = z if map_[1] is None else z + run.tensor(map_[1])
    z = z.unflatten(-1, (count, -1)).transpose(1, 2)
    constant = np.ones(len(z))
    if norm is not None:
        d = z.shape[-1]
        power = z.square().mean(dim=-1, keepdim=True)
        least = power.sqrt().amin(dim=(2, 3)).cpu().numpy() * (1 - 1e-13)
        spread = np.maximum(least - weights * x.radius[:, None] / math.sqrt(d) * (1 + 1e-15), 0.0)
        floor = np.sqrt(spread**2 + norm.epsilon).min(axis=1) * (1 - 1e-15)
        constant = over(largest(norm.gain), floor)
        z = z / (power + norm.epsilon).sqrt()
        z = z if norm.gain is None else z * run.tensor(norm.gain)
    if rotary is not None:
        z = turned(z, *(run.tensor(part) for part in rotary))
        constant = times(constant, _stretch(rotary))
    return z, constant


def turned(z: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary positions, on the first coordinates as many as there are cosines."""
    cosine, sine = cosine[..., : z.shape[-2], :], sine[..., : z.shape[-2], :]
    part, rest = z[..., : cosine.shape[-1]], z[..., cosine.shape[-1] :]
    left, right = part.chunk(2, dim=-1)
    return torch.cat((part * cosine + torch.cat((-right, left), dim=-1) * sine, rest), dim=-1)


def _stretch(rotary: Rotary) -> float:
    """Norm of the rotations: 1 but for rounding and for the factors of scaled positions."""
    cosine, sine = (part.detach().double() for part in rotary)
    for part in (cosine, sine):
        left, right = part.chunk(2, dim=-1)
        if not torch.equal(left, right):
            raise ValueError("rotary positions must turn pairs of coordinates by one angle")
    return max(1.0, float((cosine**2 + sine**2).sqrt().max()) * (1 + 1e-15))


def additive(
    run: Frame, mask: torch.Tensor | None, bias: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Mask and bias as one term of the scores, −inf where a query does not see a key."""
    fixed = None
    if bias is not None:
        fixed = run.tensor(bias).expand(shape)
    if mask is not None:
        seen = mask.to(run.device)
        seen = seen.expand(shape) if seen.ndim != 3 else seen[:, None].expand(shape)
        if not bool(seen.any(dim=-1).all()):
            raise ValueError("a mask leaves some query without any key: its output is undefined")
        fixed = torch.zeros((), dtype=torch.float64, device=run.device) if fixed is None else fixed
        fixed = torch.where(seen, fixed, -math.inf)
    return fixed


def _ball(
    run: Frame,
    x: Region,
    y: Region,
    heads: Heads,
    known: Norms,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    rotary: Rotary | None,
) -> Part:
    """Attention on all tokens of bounded length."""
    spread = times(known.values, _tall(y.length))  # of the values of a head: biases do not matter
    moved = rotary is not None or heads.softcap is not None or heads.key_norm is not None
    q = plus(times(known.queries, _tall(x.length)), known.query_biases)
    k = plus(times(known.keys, _tall(y.length)), known.key_biases if moved else 0.0)
    stretch = 1.0 if rotary is None else _stretch(rotary)
    nq, q = _limited(heads.query_norm, q, heads.width)
    nk, k = _limited(heads.key_norm, k, heads.width)
    nq, nk, q, k = (times(stretch, value) for value in (nq, nk, q, k))
    v, k = (np.repeat(value, heads.group, axis=1) for value in (spread, k))
    size = plus(times(known.values, _tall(y.length)), _value_biases(heads))
    longest = root((times(size, size).sum(axis=1) * heads.group) * (1 + 1e-14 * heads.heads))
    if run.dry:
        return Part(nq * 0, nq * 0, longest)
    lever, slope = times(heads.scale, q), times(heads.scale, v, k)
    energy = times(lever, v)
    apart = times(2.0, lever, k)
    apart = apart if heads.softcap is None else np.minimum(apart, 2 * heads.softcap)
    query = times(slope.max(axis=1), known.query, nq)
    context = [
        _columns(run, x, y, heads, known, (energy[b], apart[b], float(nk[b])), mask, bias)
        for b in range(len(energy))
    ]
    return Part(query, number(context), longest)


def _tall(value: Numbers) -> Numbers:
    return np.atleast_1d(value)[:, None]


def _value_biases(heads: Heads) -> Numbers:
    bias = heads.value[1]
    if bias is None:
        return np.zeros(heads.kv_heads)
    return number([length(block) for block in bias.chunk(heads.kv_heads)])


def _limited(norm: HeadNorm | None, size: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """Constant and size of queries or keys after their norm, if they have one."""
    if norm is None:
        return np.ones(len(size)), size
    top = largest(norm.gain)
    constant = np.full(len(size), top / math.sqrt(norm.epsilon) * (1 + 1e-15))
    return constant, np.minimum(times(constant[:, None], size), top * math.sqrt(width) * (1 + 1e-15))


def _columns(
    run: Frame,
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
    if not np.isfinite(energy).all():
        return math.inf
    if run.norm == "token":
        v, k = (np.repeat(part, heads.group) for part in (known.values, known.keys))
        return float(hypotenuse(*plus(v, times(energy, k, nk))))
    seen, copies = np.ones((1, y.tokens), dtype=bool), x.tokens
    if mask is not None:
        seen, copies = mask.reshape(-1, *mask.shape[-2:])[0].cpu().numpy(), 1
    osc = np.full(len(seen), float(apart.max()))
    if bias is not None:
        seen = np.broadcast_to(seen, (x.tokens, y.tokens))
        values = bias.detach().double().reshape(-1, *bias.shape[-2:]).cpu().numpy()
        high = np.where(seen, values, -np.inf).max(axis=(0, 2))
        low = np.where(seen, values, np.inf).min(axis=(0, 2))
        osc, copies = np.full(len(seen), osc[0]) + (high - low) * (1 + 1e-15), 1
    power = float(energy.max()) ** 2 * (1 + 1e-15)
    many = math.sqrt(heads.group) * (1 + 1e-15)

    def heaviest(energy: float, plain: float) -> Any:
        return times(many, root(heaviest_column(seen, energy, osc, plain=plain, copies=copies)))

    flat, keyed = heaviest(0.0, 1.0), heaviest(power, 0.0)
    joint = heaviest(power * (nk / known.ratio) ** 2 * (1 + 1e-15), 1.0)
    separate = plus(times(flat, known.value), times(keyed, known.key, nk))
    return float(min(separate, times(joint, known.both)))
