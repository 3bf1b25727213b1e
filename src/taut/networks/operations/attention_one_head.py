"""What attention does to queries, keys and values that are given, or near to given ones.

Proof in docs/proofs_attention.md (attn-core). For one head and one query, with P its weights and
λ the norm of a covariance under P, a change (dq, dk, dv) moves the output by at most

    α√(λ(v)·λ(k))·|dq| + |Σⱼ Pⱼ dvⱼ| + (Σⱼ Pⱼ·α²|q|²λ(v)·|dkⱼ|²)^½.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.operations.covariance_norm import spreads, sure


class Distances(NamedTuple):
    """How far queries, keys and values of a head can be from the given ones."""

    query: float
    key: float
    value: float


class HeadConstants(NamedTuple):
    """One head: numbers for each query, and its weights from above."""

    turn: torch.Tensor  # what a change of the query is multiplied by
    energy: torch.Tensor  # what |dk|² is multiplied by
    weights: torch.Tensor


def one_head(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    softcap: float | None,
    fixed: torch.Tensor | None,
    near: Distances,
    *,
    dry: bool,
) -> tuple[HeadConstants, torch.Tensor]:
    """Bounds of one head, (queries, width) against (keys, width), and its mean values.

    ``fixed`` is added to the scores; it is −inf where a query does not see a key. A ``dry`` run
    wants the mean values only.
    """
    keys = k if softcap is not None else k - k.mean(dim=0)  # theorem shift
    scores = scale * (q @ keys.mT)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    weights = torch.softmax(scores if fixed is None else scores + fixed, dim=-1)
    middle = v.mean(dim=0)
    centred = v - middle
    mean = weights @ centred
    if dry:
        return HeadConstants(mean, mean, weights), mean + middle
    long_q, long_k, long_v = (
        _lengths(q),
        float(_lengths(keys).max()),
        float(_lengths(centred).max()),
    )
    slack = _doubt(float(long_q.max()), float(_lengths(k).max()), scale, fixed, q.shape[1], len(k))
    spread_v = spreads(weights, centred, mean)
    # Under a cap the keys cannot be centred: their second moment takes the place of the variance.
    spread_k = spreads(weights, keys, None if softcap is None else torch.zeros_like(q))
    if max(near) > 0:
        # Centring has rounded keys and values.
        near = near._replace(key=near.key + EPS * long_k, value=near.value + EPS * long_v)
        step = scale * (long_q * near.key + near.query * (long_k + near.key))
        if softcap is not None:
            step = step.clamp(max=2 * softcap)
        growth = torch.exp(2 * step * (1 + 16 * EPS)) * (1 + 8 * EPS)
        spread_v = _grown(spread_v, growth, near.value, long_v)
        spread_k = _grown(spread_k, growth, near.key, long_k)
        seen = torch.ones_like(weights) if fixed is None else (fixed > -math.inf).double()
        # 1e-300 stands for weights that were too small to be stored.
        weights = ((weights + 1e-300) * growth[:, None]).clamp(max=1.0) * seen
        long_q = long_q + near.query
    turn, energy = scale * spread_v.sqrt() * spread_k.sqrt(), (scale * long_q) ** 2 * spread_v
    row = (sure(part * (1 + slack)) for part in (turn, energy, weights))
    return HeadConstants(*row), mean + middle


def _lengths(points: torch.Tensor) -> torch.Tensor:
    """Length of every row, from above: a sum of squares, and its root."""
    found: torch.Tensor = points.norm(dim=1)
    return found * (1 + (points.shape[1] + 8) * EPS)


def _doubt(
    query: float, key: float, scale: float, fixed: torch.Tensor | None, width: int, keys: int
) -> float:
    """Relative error of the weights of exact queries and keys.

    A score errs by γ_{width+8} of 2·scale·|q||k| and of the fixed term, and the logarithm of a
    weight by twice that and γ_{keys+8} for the sum of the exponentials; 16 EPS for each of them
    leave room for the few products, roots and sums that the constants are then made with.
    """
    shifted = 0.0
    if fixed is not None:
        shifted = float(torch.where(fixed > -math.inf, fixed, 0.0).abs().max())
    reach = 1 + 2 * scale * query * key + shifted
    return math.expm1(min(16 * EPS * ((width + 8) * reach + keys), 700.0))


def _grown(spread: torch.Tensor, growth: torch.Tensor, near: float, longest: float) -> torch.Tensor:
    """Variance when weights grow by a factor and points move; never more than their length²."""
    most = min((longest + near), 1e150) ** 2 * (1 + 16 * EPS)
    if longest + near > 1e150:
        most = math.inf
    return sure(growth * (spread.sqrt() + near) ** 2).clamp(max=most)
