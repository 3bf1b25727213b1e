"""What attention does to queries, keys and values that are given, or near to given ones.

Proof in docs/proofs_attention.md (attn-core). For one head and one query, with P its weights and
λ the norm of a covariance under P, a change (dq, dk, dv) moves the output by at most

    α√(λ(v)·λ(k))·|dq| + |Σⱼ Pⱼ dvⱼ| + (Σⱼ Pⱼ·α²|q|²λ(v)·|dkⱼ|²)^½.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

EPS = 2.0**-52
AFFORDABLE = 1 << 26  # numbers in the second moments of one head; beyond, traces are taken
BLOCK = 64
LONG = 256  # keys, from which on second moments are summed in float32
SQUARINGS = 2


class Near(NamedTuple):
    """How far queries, keys and values of a head can be from the given ones."""

    query: float
    key: float
    value: float


class Row(NamedTuple):
    """One head: numbers for each query, and its weights from above."""

    turn: torch.Tensor  # what a change of the query is multiplied by
    energy: torch.Tensor  # what |dk|² is multiplied by
    weights: torch.Tensor


def head(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    softcap: float | None,
    fixed: torch.Tensor | None,
    near: Near,
    *,
    dry: bool,
) -> tuple[Row, torch.Tensor]:
    """Bounds of one head, (queries, width) against (keys, width), and its mean values.

    ``fixed`` is added to the scores; it is −inf where a query does not see a key. A ``dry`` run
    wants the mean values only.
    """
    keys = k
    if softcap is None:
        k = k - k.mean(dim=0)  # adds the same to all scores of a query (theorem shift)
    scores = scale * (q @ k.mT)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores if fixed is None else scores + fixed
    weights = torch.softmax(scores, dim=-1)
    middle = v.mean(dim=0)
    centred = v - middle
    mean = weights @ centred
    if dry:
        return Row(mean, mean, weights), mean + middle
    long_q, long_k = q.norm(dim=1), float(k.norm(dim=1).max())
    # Relative error of the weights: that of the scores, twice, since they are compared.
    far = float(keys.norm(dim=1).max())
    shifted = (
        0.0 if fixed is None else float(torch.where(fixed > -math.inf, fixed, 0.0).abs().max())
    )
    reach = 1 + 2 * scale * float(long_q.max()) * far + shifted
    slack = math.expm1(min(16 * EPS * (q.shape[1] + 8) * reach, 700.0))
    spread_v = spreads(weights, centred, mean)
    # Under a cap the keys cannot be centred: their second moment takes the place of the variance.
    spread_k = spreads(weights, k, None if softcap is None else torch.zeros_like(q))
    if max(near) > 0:
        step = scale * (long_q * near.key + near.query * (long_k + near.key))
        if softcap is not None:
            step = step.clamp(max=2 * softcap)
        growth = torch.exp(2 * step) * (1 + 8 * EPS)
        spread_v = _grown(spread_v, growth, near.value, float(centred.norm(dim=1).max()))
        spread_k = _grown(spread_k, growth, near.key, long_k)
        seen = torch.ones_like(weights) if fixed is None else (fixed > -math.inf).double()
        # 1e-300 stands for weights that were too small to be stored.
        weights = ((weights + 1e-300) * growth[:, None]).clamp(max=1.0) * seen
        long_q = long_q + near.query
    turn, energy = scale * spread_v.sqrt() * spread_k.sqrt(), (scale * long_q) ** 2 * spread_v
    row = (sure(part * (1 + slack)) for part in (turn, energy, weights))
    return Row(*row), mean + middle


def _grown(spread: torch.Tensor, growth: torch.Tensor, near: float, longest: float) -> torch.Tensor:
    """Variance when weights grow by a factor and points move; never more than their length²."""
    most = min((longest + near), 1e150) ** 2 * (1 + 16 * EPS * 64)
    if longest + near > 1e150:
        most = math.inf
    return sure(growth * (spread.sqrt() + near) ** 2).clamp(max=most)


def sure(value: torch.Tensor) -> torch.Tensor:
    """What is no number bounds nothing."""
    return torch.nan_to_num(value, nan=math.inf, posinf=math.inf)


def spreads(weights: torch.Tensor, values: torch.Tensor, mean: torch.Tensor | None) -> torch.Tensor:
    """Norm of the covariance of the values under each row of weights, from above.

    ``mean`` are the means, where they are known already, or zeros for second moments.
    """
    n, m = weights.shape
    d = values.shape[1]
    largest = float(values.abs().max())
    if largest == 0 or not math.isfinite(largest):
        return weights.new_full((n,), 0.0 if largest == 0 else math.inf)
    values = values / largest  # so that no square overflows or vanishes
    mean = weights @ values if mean is None else mean / largest
    squares = values.square().sum(dim=1)
    power = weights @ squares
    if m * d * d > AFFORDABLE:  # the trace is never below the norm
        trace = (power - mean.square().sum(dim=1)).clamp(min=0.0)
        return _scaled(trace + 4 * EPS * (m + d) * power, largest)
    # Long sums in float32: each entry errs by at most (terms)·eps of what was added up, which as a
    # matrix is no larger than (terms)·eps·E|v|².
    kind = torch.float64 if m < LONG else torch.float32
    eps = torch.finfo(kind).eps
    sizes = power.to(kind).clamp(min=torch.finfo(kind).tiny)
    slack = (m + 16) * eps * power + 64 * m * torch.finfo(kind).tiny
    if kind == torch.float32:  # weights that it cannot hold
        slack = slack + torch.where(weights < 1e-30, weights, 0.0) @ squares
    p, v, centre = weights.to(kind), values.to(kind), mean.to(kind)
    products = (v[:, :, None] * v[:, None, :]).flatten(1)
    found = weights.new_empty(n)
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        seen = int(p[rows].any(dim=0).nonzero().max()) + 1  # the rest is 0 (a causal mask)
        gram = (p[rows, :seen] @ products[:seen]).reshape(-1, d, d)
        gram = torch.baddbmm(gram, centre[rows, :, None], centre[rows, None, :], alpha=-1)
        found[rows] = _largest_eigenvalue(gram, sizes[rows]).to(found.dtype)
    return _scaled(found * sizes + slack, largest)


def _scaled(value: torch.Tensor, factor: float) -> torch.Tensor:
    """Times factor², never 0: what underflows stays above the truth."""
    return sure(value * factor * factor).clamp(min=5e-324)


def _largest_eigenvalue(gram: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Norm of symmetric matrices over ``sizes``, their traces or more, from above.

    ‖A‖ ≤ ‖A^k‖_F^{1/k}, here for k = 4. What underflows is far below the error of the sums.
    """
    unit = gram / sizes[:, None, None]
    for _ in range(SQUARINGS):
        unit = unit @ unit
    power: torch.Tensor = unit.flatten(1).norm(dim=1) ** (0.5**SQUARINGS)
    return power * (1 + 32 * torch.finfo(gram.dtype).eps * gram.shape[-1])


def stacked(rows: list[torch.Tensor], rounds: int = 3) -> float:
    """Norm of matrices ≥ 0 stacked on top of each other, from above.

    For every w > 0, ‖P‖² ≤ maxⱼ (PᵀPw)ⱼ/wⱼ (Collatz and Wielandt); the power method finds a good w.
    """
    w = rows[0].new_ones(rows[0].shape[1])
    best = math.inf
    for _ in range(rounds):
        image = sum((p.mT @ (p @ w) for p in rows), torch.zeros_like(w))
        best = min(best, float((image / w).max()))
        top = float(image.max())
        if not 0 < top < math.inf:
            break
        w = (image / top).clamp(min=1e-3)
    return math.sqrt(best) * (1 + 8 * EPS * sum(rows[0].shape))
