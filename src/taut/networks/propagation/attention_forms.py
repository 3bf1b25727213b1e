"""Inner products of scores, keys and values of attention, for forms of the whole input."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from taut.networks.propagation.attention_scores import score_doubt, score_rows
from taut.networks.propagation.ellipsoid import roots, safe, turned, with_box
from taut.networks.propagation.local_rows import local_rows

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


def attention_forms(node: AttentionNode, engine: Engine) -> Forms | None:
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
    sizes = roots(whole)
    scores = (b.flatten(0, 1) @ whole).reshape(b.shape) @ b.mT
    scores = safe(scores, b.abs() @ sizes[:, None], whole.shape[-1])
    assert node.found is not None
    product = node.found[0].bilinear
    both = product + (node.p * product).sum(dim=-1, keepdim=True)
    rest = (both + rounding) * (1 + 1e-9) + score_doubt(node)
    rest = torch.where(node.seen, rest, 0.0)
    (q, q_token, q_off), (k, k_token, k_off), (v, v_token, v_off) = blocks
    own = whole.reshape(*shape[:2], *shape[:2])
    queries = [
        with_box(
            safe(m @ own[t, :, t] @ m.mT, m.abs() @ sizes.reshape(shape[:2])[t][:, None], shape[1]),
            off,
        )
        for m, t, off in zip(q, q_token.tolist(), q_off, strict=True)
    ]
    pairs = []
    for m, token, off in ((k, k_token, k_off), (v, v_token, v_off)):
        full = turned(whole, shape[0], m, token)
        full = with_box(full, off.flatten())
        pairs.append(_paired(full, node, keys))
    return Forms(scores, rest, torch.stack(queries), pairs[0], pairs[1])


def _paired(full: torch.Tensor, node: AttentionNode, keys: int) -> torch.Tensor:
    """(keys·heads·width)² as (heads, heads, keys·keys, width·width), shared heads repeated."""
    own = node.kv_heads
    width = len(full) // keys // own
    grid = full.reshape(keys, own, width, keys, own, width).permute(1, 4, 0, 3, 2, 5)
    found = grid.reshape(own, own, keys * keys, width * width)
    if node.group == 1:
        return found
    return found.repeat_interleave(node.group, 0).repeat_interleave(node.group, 1)


def _score_rows(node: AttentionNode, engine: Engine) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Centred scores as rows on the checkpoint, (heads·queries·keys, entries), and rounding."""
    index = node.seen.nonzero()
    chosen = (index[:, 0], index[:, 1], index[:, 2])
    starts = score_rows(node, node.p, torch.ones_like(node.p), chosen)
    found = engine.carry(starts, trail=True, ends=True)
    trail = found.trail
    assert trail is not None
    assert engine.checkpoint is not None
    if trail.stop != engine.checkpoint[0] or trail.parts or trail.ends is None:
        return None
    tokens = engine.nodes[trail.stop].tokens
    dense = trail.ends.dense(tokens).flatten(1)
    rows = dense.new_zeros(*node.p.shape, dense.shape[-1])
    rounding = torch.zeros_like(node.p)
    rows[chosen] = dense
    rounding[chosen] = found.rounding + found.shift.abs()
    return rows.flatten(0, 2), rounding
