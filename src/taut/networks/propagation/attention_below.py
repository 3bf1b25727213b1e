"""Attention bounded from below, with free choices (theorem affine-attention-below)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from taut.networks.propagation.choices import AttentionChoices
from taut.networks.propagation.node import Pulled
from taut.networks.propagation.rows import Rows, heads_apart

if TYPE_CHECKING:
    from taut.networks.propagation.attention_node import AttentionNode

NARROW = 0.5  # centred scores that move more are bounded as for both sides


class Below(NamedTuple):
    """Σ δp·(b + a·δv) ≥ Σ on_scores·c + Σ on_values·(a·δv) + constant − error.

    Every tensor is (rows, heads, queries, keys), or without keys for constant and error.
    """

    on_scores: torch.Tensor
    on_values: torch.Tensor
    constant: torch.Tensor
    error: torch.Tensor


def bound_below(
    node: AttentionNode, beta: torch.Tensor, reach: torch.Tensor, choices: AttentionChoices
) -> Below:
    """For β = a·v₀, and a·δv of each key at most ``reach``, (rows, heads, queries, keys).

    With corner numbers λ between −1 and 1, |δp| ≤ P and |a·δv| ≤ V:
    δp·a·δv ≥ λ(V·δp + P·a·δv) − PV, so that b = β + λV counts, centred under p. As
    δp = p(e^(c−γ) − 1) with 0 ≤ γ ≤ g and Σpb = 0, Σδp b = e^(−γ)·N for N = Σpb(e^c − 1), which is
    at least N − (1 − e^(−g))·max(N, 0). In N the exponential is replaced by a tangent where b > 0,
    and by its chord on [−a, a] where b < 0.
    """
    assert node.found is not None
    scores, remainder = node.found
    p, change, a = node.p, remainder.change, scores.centred
    tangent = choices.tangents
    b = beta + choices.corners * reach
    weight = p + choices.corners * change
    b = b - (p * b).sum(dim=-1, keepdim=True)
    up, down = (p * b).clamp(min=0.0), (p * b).clamp(max=0.0)
    small = a.clamp(max=NARROW)
    # sinh(a)/a and cosh(a) − 1 from above: the chord may lie anywhere above the exponential
    steep = torch.where(small > 1e-4, torch.sinh(small) / small.clamp(min=1e-4), 1.0)
    top = 2 * torch.sinh(small / 2).square() * (1 + 1e-9) + 1e-12
    slope = torch.exp(tangent)
    start = slope * (1 - tangent) - 1
    on_scores = up * slope + down * steep
    constant = (up * start + down * top).sum(dim=-1)
    most = (up * torch.expm1(small) - down * (-torch.expm1(-small))).sum(dim=-1)
    lost = -torch.expm1(-remainder.gap[..., 0])
    product = (change * reach).sum(dim=-1)
    rounded = ((up - down).sum(dim=-1) + product) * (1e-12 + 8 * node.doubt)
    error = (most * lost + product) * (1 + 1e-9) + rounded
    return Below(on_scores, weight, constant, error)


def narrow(node: AttentionNode) -> bool:
    """Whether the centred scores move so little that this bound holds."""
    return node.found is not None and bool((node.found[0].centred <= NARROW).all())


def first_choices(node: AttentionNode) -> AttentionChoices:
    """Tangents at the centre, and no corner."""
    nothing = torch.zeros_like(node.p)[None]
    return AttentionChoices(nothing, nothing.clone())


def tangent_limits(node: AttentionNode) -> tuple[torch.Tensor, torch.Tensor]:
    """Tangents outside of what scores can reach never pay."""
    assert node.found is not None
    far = node.found[0].centred
    return -far, far


def pull_below(node: AttentionNode, rows: Rows, choices: AttentionChoices) -> Pulled:
    """Rows on the output as rows on queries, keys and values, from below."""
    assert node.found is not None
    assert node.reference is not None
    scores, p = node.found[0], node.p
    rows = Rows(rows.dense(node.tokens))
    a = heads_apart(rows.values, node.heads).transpose(1, 2)  # rows, heads, queries, d
    v, k = node.split(node.values.centre), node.split(node.keys.centre)
    beta = torch.einsum("shid,hjd->shij", a, v)
    found = bound_below(node, beta, node.reference.reach(a), choices)
    # Σ w·c = Σ (w − p·Σw)·δs, as c is centred under p
    w = found.on_scores
    gamma = w - p * w.sum(dim=-1, keepdim=True)
    error = found.error.flatten(1).sum(dim=1)
    error = error + (gamma.abs() * scores.bilinear).flatten(1).sum(dim=1)
    gamma = gamma * scores.slope * node.scale
    q = node.split(node.queries.centre, queries=True)
    on_q = torch.einsum("shij,hjd->shid", gamma, k)
    on_k = torch.einsum("shij,hid->shjd", gamma, q)
    on_v = torch.einsum("shij,shid->shjd", found.on_values, a)
    pulled = (
        rows.but(on_q.transpose(1, 2).flatten(2)), Rows(node.shared(on_k)), Rows(node.shared(on_v)),
    )  # fmt: skip
    shift = found.constant.flatten(1).sum(dim=1)
    rounding = 2 * node.rounding_of(rows, found.error)
    return Pulled(pulled, shift, error * (1 + 1e-9), rounding)
