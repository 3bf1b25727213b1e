"""Attention beyond its derivative: products of scores and values as forms of the whole input."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from taut._base.matrix_norm import largest_eigenvalues
from taut._base.rounding import EPS
from taut.networks.propagation.attention_scores import score_doubt, score_rows
from taut.networks.propagation.ellipsoid import (
    boxed,
    combined,
    safe,
    trace,
    turned,
    with_ridge,
)
from taut.networks.propagation.local_rows import local_rows
from taut.networks.propagation.softmax_remainder import beyond_linear

if TYPE_CHECKING:
    from taut.networks.propagation.attention_node import AttentionNode
    from taut.networks.propagation.engine import Engine


class Forms(NamedTuple):
    """Matrices of inner products, in units of an ellipsoid that all of the input is in.

    Attributes
    ----------
    scores
        Of the linear parts of centred scores, (queries, heads·keys, heads·keys).
    rest
        How far scores can be from these, (heads, queries, keys).
    queries
        Of the entries of each query, (queries, heads·width, heads·width).
    keys, values
        Of all pairs, (heads, heads, keys·keys, width·width).
    """

    scores: torch.Tensor
    rest: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def products(node: AttentionNode, engine: Engine) -> torch.Tensor | None:
    """An ellipsoid of what each query's output is beyond its linear part, or None.

    If x = a·z and y = b·z with |z| ≤ 1, then Σ c·xy ≤ ‖Σ c·abᵀ‖_F, whose square is a quadratic
    form in c: the inner products of x and y multiplied entry by entry.
    """
    joint = node.joint
    if joint is None or not joint.fits or node.softcap is not None:
        return None
    forms = _forms(node, engine)
    if forms is None:
        return None
    heads, many, keys = node.p.shape
    v = node.split(node.values.centre)
    apart = (v[:, None] - (node.p @ v)[:, :, None]).transpose(0, 1)  # queries, heads, keys, width
    width = v.shape[-1]
    p = node.p.transpose(0, 1).reshape(many, -1)
    weights = p[:, :, None] * p[:, None] * forms.scores
    square = _read(weights * forms.scores / 4, apart)
    grid = (many, heads, keys, heads, keys)
    pairs = weights.reshape(grid).permute(1, 3, 0, 2, 4).reshape(heads, heads, many, -1)
    moved = (pairs @ forms.values).reshape(heads, heads, many, width, width)
    moved = moved.permute(2, 0, 3, 1, 4).reshape(many, heads * width, heads * width)
    size = node.width_of_query
    q = forms.queries.reshape(many, heads, size, heads, size)
    q = q.permute(1, 3, 2, 4, 0).reshape(heads, heads, -1, many)
    bilinear = (forms.keys @ q).reshape(heads, heads, keys, keys, many).permute(4, 0, 2, 1, 3)
    bilinear = bilinear.reshape(many, heads * keys, heads * keys) * node.scale**2
    bilinear = _read(bilinear * p[:, :, None] * p[:, None], apart)
    terms = keys**2 + width**2 + 64
    main = [with_ridge(each, terms * 4 * EPS * trace(each)) for each in (square, moved, bilinear)]
    return combined([*main, *_third(node, forms, apart)])


def _read(form: torch.Tensor, apart: torch.Tensor) -> torch.Tensor:
    """Σ form[hj, gk] v_hj v_gkᵀ, (queries, heads·width, heads·width)."""
    many, heads, keys, width = apart.shape
    grid = form.reshape(many, heads, keys, heads, keys)
    found = torch.einsum("ihjgk,ihjd,igke->ihdge", grid, apart, apart)
    return found.reshape(many, heads * width, heads * width) * (1 + 1e-9)


def _third(node: AttentionNode, forms: Forms, apart: torch.Tensor) -> list[torch.Tensor]:
    """What is of third order: the rest of softmax, of the scores, and of weights times values."""
    assert node.found is not None
    assert node.joint is not None
    scores, remainder = node.found
    p, a, gap = node.p, scores.centred, remainder.gap * (1 + 1e-9)
    many, heads, keys, width = apart.shape
    # rem/p = s²/2 + (e^s − 1 − s − s²/2) − η(e^s − 1) − η, η = 1 − e^−γ; the last has no effect
    far = a.clamp(min=1e-6)
    cubic = (beyond_linear(far) - far.square() / 2).clamp(min=0.0) + 1e-9 * far.square()
    ratio = p * (cubic / far + gap * torch.expm1(far) / far)
    w = (node.joint.weights * node.seen).transpose(0, 1).reshape(many, -1)
    rest = forms.rest.transpose(0, 1).reshape(many, -1)
    form = w.sqrt()[:, :, None] * forms.scores * w.sqrt()[:, None]
    top = torch.from_numpy(largest_eigenvalues(form.cpu().numpy())).to(w)
    top = top + 64 * EPS * trace(form)
    shared = (top.sqrt() + (w * rest.square()).sum(dim=-1).sqrt()).square() * (1 + 1e-9)
    ratio = ratio.transpose(0, 1).reshape(many, -1)
    over = torch.where(w > 0, ratio.square() / w.clamp(min=1e-300), 0.0)
    softmax = torch.diag_embed(over * shared[:, None])
    flat = (p * forms.rest * (a + forms.rest)).transpose(0, 1).reshape(many, -1)
    # weights are rounded: what should cancel is off by their doubt
    lost = gap * (4 * node.doubt + (keys + 16) * EPS) * p
    flat = flat + lost.transpose(0, 1).reshape(many, -1)
    found = [_read(softmax, apart), _read(torch.diag_embed(boxed(flat)), apart)]
    change = torch.maximum(remainder.low, remainder.high) + p * forms.rest
    own = forms.values.diagonal(dim1=0, dim2=1)  # keys·keys, width·width, heads
    own = own.reshape(keys, keys, width, width, heads).diagonal(dim1=0, dim2=1)
    own = own.permute(2, 3, 0, 1)  # heads, keys, width, width
    size = trace(own).clamp(min=0.0).sqrt()[:, None]  # heads, 1, keys
    total = (change * size).sum(dim=(0, 2))
    share = torch.where(size > 0, change / size.clamp(min=1e-300), 0.0)
    blocks = torch.einsum("hij,hjde->ihde", share, own) * total[:, None, None, None] * (1 + 1e-9)
    found.append(torch.stack([torch.block_diag(*each) for each in blocks]))
    return [with_ridge(each, 256 * EPS * trace(each)) for each in found]


def _forms(node: AttentionNode, engine: Engine) -> Forms | None:
    """All inner products, if queries, keys and values are linear in one checkpoint."""
    blocks = []
    for part in (node.queries, node.keys, node.values):
        found = local_rows(part, engine)
        if found is None or not bool(part.needed.all()):
            return None
        blocks.append(found[1:])
    assert engine.checkpoint is not None
    whole = engine.checkpoint[1].whole(engine.inputs.far)
    shape = engine.checkpoint[1].linear.shape
    rows = _score_rows(node, engine)
    if rows is None:
        return None
    b, rounding = rows
    heads, many, keys = node.p.shape
    b = b.reshape(heads, many, keys, -1).transpose(0, 1).reshape(many, heads * keys, -1)
    roots = whole.diagonal().clamp(min=0.0).sqrt()
    scores = (b.flatten(0, 1) @ whole).reshape(b.shape) @ b.mT
    scores = safe(scores, b.abs() @ roots[:, None], whole.shape[-1])
    assert node.found is not None
    product = node.found[0].bilinear
    both = product + (node.p * product).sum(dim=-1, keepdim=True)
    rest = (both + rounding) * (1 + 1e-9) + score_doubt(node)
    rest = torch.where(node.seen, rest, 0.0)
    (q, q_token, q_off), (k, k_token, k_off), (v, v_token, v_off) = blocks
    own = whole.reshape(*shape[:2], *shape[:2])
    queries = torch.stack([
        combined([
            safe(m @ own[t, :, t] @ m.mT, m.abs() @ roots.reshape(shape[:2])[t][:, None], shape[1]),
            torch.diag(boxed(off[None])[0]),
        ])
        for m, t, off in zip(q, q_token.tolist(), q_off, strict=True)
    ])  # fmt: skip
    pairs = []
    for m, token, off in ((k, k_token, k_off), (v, v_token, v_off)):
        full = turned(shape[0], shape[1], whole, m, token)
        full = combined([full, torch.diag(boxed(off.reshape(1, -1))[0])])
        pairs.append(_paired(full, node, keys))
    return Forms(scores, rest, queries, pairs[0], pairs[1])


def _paired(full: torch.Tensor, node: AttentionNode, keys: int) -> torch.Tensor:
    """(keys·heads·width)² as (heads, heads, keys·keys, width·width), shared heads repeated."""
    own = node.kv_heads
    width = len(full) // keys // own
    grid = full.reshape(keys, own, width, keys, own, width).permute(1, 4, 0, 3, 2, 5)
    found = grid.reshape(own, own, keys * keys, width * width)
    return found.repeat_interleave(node.group, 0).repeat_interleave(node.group, 1)


def _score_rows(
    node: AttentionNode, engine: Engine
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Centred scores as rows on the checkpoint, (heads·queries·keys, entries), and rounding."""
    index = node.seen.nonzero()
    chosen = (index[:, 0], index[:, 1], index[:, 2])
    found = engine.carry(score_rows(node, node.p, torch.ones_like(node.p), chosen), trail=True)
    trail = found.trail
    assert trail is not None
    if not trail.stop or trail.parts or trail.ends is None:
        return None
    tokens = engine.nodes[trail.stop].tokens
    dense = trail.ends.dense(tokens).flatten(1)
    rows = dense.new_zeros(*node.p.shape, dense.shape[-1])
    rounding = torch.zeros_like(node.p)
    rows[chosen] = dense
    rounding[chosen] = found.rounding + found.shift.abs()
    return rows.flatten(0, 2), rounding
