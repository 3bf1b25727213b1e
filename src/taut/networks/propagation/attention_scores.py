"""Scores of attention near its centres: how far they move, centred under the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.node import Node
from taut.networks.propagation.rows import Rows

if TYPE_CHECKING:
    from taut.networks.propagation.attention_node import AttentionNode
    from taut.networks.propagation.engine import Engine

LARGEST_TABLE = 3e7  # numbers in the linear parts of all scores
CAPPED = 0.385  # half of the largest second derivative of tanh, rounded up


class MovedScores(NamedTuple):
    """Every tensor is (heads, queries, keys).

    Attributes
    ----------
    slope
        Derivative of the soft cap at the centre; 1 without one.
    bilinear
        Largest part of a score that is not linear in queries and keys.
    centred
        Largest |δsⱼ − Σₖ pₖ δsₖ|.
    linear, rest
        The linear part of the centred scores, (heads, queries, keys, entries), unless it is too
        large, and how far they can be from it.
    """

    slope: torch.Tensor
    bilinear: torch.Tensor
    centred: torch.Tensor
    linear: torch.Tensor | None
    rest: torch.Tensor


def bound_scores(engine: Engine, node: AttentionNode, p: torch.Tensor) -> MovedScores:
    """How far scores move, for weights p at the centres."""
    q, k = node.queries.box, node.keys.box
    assert q is not None
    assert k is not None
    radius_q, radius_k = node.split(q, queries=True), node.split(k)
    product = node.scale * torch.einsum("hid,hjd->hij", radius_q, radius_k)
    if bool((product > 1e-9).any()):
        long_q = engine.factors(node.queries, node.heads).lengths.mT
        long_k = engine.factors(node.keys, node.kv_heads).lengths.mT
        long_k = long_k.repeat_interleave(node.group, dim=0)
        product = torch.minimum(product, node.scale * long_q[:, :, None] * long_k[:, None])
    slope = torch.ones_like(p)
    if node.softcap is not None:
        slope, product = _capped(node, radius_q, radius_k, product)
    product = torch.where(node.seen, product, 0.0) * (1 + 1e-9)
    centred, linear, rest = _centred(engine, node, p, slope)
    both = product + (p * product).sum(dim=-1, keepdim=True)
    doubt = score_doubt(node)
    rest = (rest + both) * (1 + 1e-9) + doubt
    far = torch.where(node.seen, (centred + both) * (1 + 1e-9) + doubt, 0.0)
    return MovedScores(slope, product, far, linear, rest)


def _capped(
    node: AttentionNode, radius_q: torch.Tensor, radius_k: torch.Tensor, product: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Slope of cap·tanh(s/cap) and what is not linear in it: at most 0.385/cap·(change of s)²."""
    assert node.softcap is not None
    q, k = node.split(node.queries.centre, queries=True), node.split(node.keys.centre)
    plain = node.scale * torch.einsum("hid,hjd->hij", q, k)
    slope = 1 - torch.tanh(plain / node.softcap).square()
    one = torch.einsum("hid,hjd->hij", q.abs(), radius_k)
    other = torch.einsum("hid,hjd->hij", radius_q, k.abs())
    moved = node.scale * (one + other) + product
    return slope, slope * product + CAPPED / node.softcap * moved.square() * (1 + 1e-9)


def score_doubt(node: AttentionNode) -> torch.Tensor:
    """Rounding of the coefficients of centred scores, times how far queries and keys move.

    Coefficients err by γ of their size: sums over a query's width and over the keys, weights with
    their doubt, and a cap.
    """
    q, k = node.queries, node.keys
    terms = (node.width_of_query + node.keys.tokens + 64) * 8 * EPS
    far_q = q.sizes * float(k.centre.norm(dim=-1).max())
    far_k = q.centre.norm(dim=-1) * float(k.sizes.max())
    doubt: torch.Tensor = node.scale * (terms + 4 * node.doubt) * (far_q + far_k)
    return doubt[None, :, None]


def _centred(
    engine: Engine, node: AttentionNode, p: torch.Tensor, slope: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Radius of the linear part of the centred scores, by a row of its own for each of them."""
    seen = node.seen & node.needed.to(p.device)[None, :, None]
    index = seen.nonzero()
    joint = p.numel() * engine.entries < LARGEST_TABLE and not engine.quick
    radius, rest = torch.zeros_like(p), torch.zeros_like(p)
    linear = None
    where = (index[:, 0], index[:, 1], index[:, 2])
    for part in torch.split(torch.arange(len(index)), max(64, int(4e6 / node.keys.centre.numel()))):
        chosen = tuple(axis[part] for axis in where)
        found = engine.carry(score_rows(node, p, slope, chosen), keep=joint)
        rest[chosen] = (found.error + found.rounding + found.shift.abs()) * (1 + 1e-9)
        radius[chosen] = found.half + found.shift.abs()
        if joint:
            assert found.linear is not None
            values = found.linear.values
            if linear is None:
                linear = p.new_zeros(*p.shape, values.shape[-1])
            linear[chosen] = values
    return radius, linear, rest


def score_rows(
    node: AttentionNode, p: torch.Tensor, slope: torch.Tensor, chosen: tuple[torch.Tensor, ...]
) -> list[tuple[Node, Rows]]:
    """Rows of δsⱼ − Σₖ pₖ δsₖ on queries and keys, for chosen heads, queries and keys."""
    head, query, key = chosen
    group = head // node.group
    q0 = node.split(node.queries.centre, queries=True)[head, query]
    k0 = node.split(node.keys.centre)[head]  # (rows, keys, width)
    weights = -(p * slope)[head, query]
    weights[torch.arange(len(head)), key] += slope[chosen]
    on_query = q0.new_zeros(len(head), node.heads, q0.shape[-1])
    on_query[torch.arange(len(head)), head] = node.scale * torch.einsum("sj,sjd->sd", weights, k0)
    on_keys = q0.new_zeros(len(head), node.keys.tokens, node.kv_heads, q0.shape[-1])
    on_keys[torch.arange(len(head)), :, group] = node.scale * weights[:, :, None] * q0[:, None]
    return [
        (node.queries, Rows(on_query.flatten(1)[:, None], query)),
        (node.keys, Rows(on_keys.flatten(2))),
    ]
