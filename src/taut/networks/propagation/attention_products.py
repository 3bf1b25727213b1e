"""Attention beyond its derivative: products of scores and values as forms of the whole input."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from taut._base.matrix_norm import largest_eigenvalues
from taut._base.rounding import EPS
from taut.networks.propagation.attention_forms import Forms, attention_forms
from taut.networks.propagation.ellipsoid import (
    block_diagonal,
    boxed,
    combined,
    roots,
    safe,
    trace,
    with_ridge,
)
from taut.networks.propagation.softmax_remainder import beyond_linear

if TYPE_CHECKING:
    from taut.networks.propagation.attention_node import AttentionNode
    from taut.networks.propagation.engine import Engine


def products(node: AttentionNode, engine: Engine) -> torch.Tensor | None:
    """An ellipsoid of what each query's output is beyond its linear part, or None.

    If x = a·z and y = b·z with |z| ≤ 1, then Σ c·xy ≤ ‖Σ c·abᵀ‖_F, whose square is a quadratic
    form in c: the inner products of x and y multiplied entry by entry.
    """
    joint = node.joint
    if joint is None or not joint.fits or node.softcap is not None:
        return None
    forms = attention_forms(node, engine)
    if forms is None:
        return None
    many = node.p.shape[1]
    v = node.split(node.values.centre)
    apart = (v[:, None] - (node.p @ v)[:, :, None]).transpose(0, 1)  # queries, heads, keys, width
    width = v.shape[-1]
    p = node.p.transpose(0, 1).reshape(many, -1)
    weights = p[:, :, None] * p[:, None] * forms.scores
    main = [
        _read(weights * forms.scores / 4, apart),
        _moved(weights, forms.values, width),
        _read(_bilinear(node, forms) * p[:, :, None] * p[:, None], apart),
    ]
    return combined([*main, *_third(node, forms, apart)])


def _read(form: torch.Tensor, apart: torch.Tensor) -> torch.Tensor:
    """Σ form[hj, gk] v_hj v_gkᵀ, (queries, heads·width, heads·width)."""
    many, heads, keys, width = apart.shape
    grid = form.reshape(many, heads, keys, heads, keys)
    found = torch.einsum("ihjgk,ihjd,igke->ihdge", grid, apart, apart)
    most = torch.einsum("ihj,ihjd->ihd", roots(form).reshape(many, heads, keys), apart.abs())
    return safe(found.reshape(many, heads * width, -1), most.flatten(1)[..., None], keys**2)


def _moved(weights: torch.Tensor, values: torch.Tensor, width: int) -> torch.Tensor:
    """Σ weights[hj, gk] values[hjd, gke]: weights times values, (queries, heads·width, …)."""
    heads, _, pairs, _ = values.shape
    many, keys = len(weights), math.isqrt(pairs)
    grid = weights.reshape(many, heads, keys, heads, keys)
    grid = grid.permute(1, 3, 0, 2, 4).reshape(heads, heads, many, pairs)
    found = (grid @ values).reshape(heads, heads, many, width, width).permute(2, 0, 3, 1, 4)
    size = _own(values, keys, width)  # heads, keys, width, width
    most = torch.einsum("ihj,hjd->ihd", roots(weights).reshape(many, heads, keys), roots(size))
    found = found.reshape(many, heads * width, heads * width)
    return safe(found, most.flatten(1)[..., None], keys**2)


def _bilinear(node: AttentionNode, forms: Forms) -> torch.Tensor:
    """Inner products of scale·δq·δk, (queries, heads·keys, heads·keys)."""
    heads, many, keys = node.p.shape
    size = node.width_of_query
    q = forms.queries.reshape(many, heads, size, heads, size)
    own = roots(forms.queries).reshape(many, heads, size)
    q = q.permute(1, 3, 2, 4, 0).reshape(heads, heads, -1, many)
    found = (forms.keys @ q).reshape(heads, heads, keys, keys, many).permute(4, 0, 2, 1, 3)
    most = torch.einsum("ihd,hjd->ihj", own, roots(_own(forms.keys, keys, size)))
    found = found.reshape(many, heads * keys, heads * keys)
    return safe(found, most.flatten(1)[..., None], size**2) * (node.scale**2 * (1 + 1e-12))


def _own(pairs: torch.Tensor, keys: int, width: int) -> torch.Tensor:
    """The blocks of each key and head with itself, (heads, keys, width, width)."""
    found = pairs.diagonal(dim1=0, dim2=1).reshape(keys, keys, width, width, -1)
    return found.diagonal(dim1=0, dim2=1).permute(2, 3, 0, 1)


def _third(node: AttentionNode, forms: Forms, apart: torch.Tensor) -> list[torch.Tensor]:
    """What is of third order: the rest of softmax, of the scores, and of weights times values."""
    assert node.found is not None
    assert node.joint is not None
    scores, remainder = node.found
    p, a, gap = node.p, scores.centred, remainder.gap * (1 + 1e-9)
    many, _, keys, width = apart.shape
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
    own = _own(forms.values, keys, width)
    size = trace(own).clamp(min=0.0).sqrt()[:, None]  # heads, 1, keys
    total = (change * size).sum(dim=(0, 2))
    share = torch.where(size > 0, change / size.clamp(min=1e-300), 0.0)
    blocks = torch.einsum("hij,hjde->ihde", share, own) * total[:, None, None, None] * (1 + 1e-9)
    found.append(block_diagonal(blocks))
    return [with_ridge(each, 256 * EPS * trace(each)) for each in found]
