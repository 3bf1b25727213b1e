"""Ellipsoids as matrices, with room for the rounding of their arithmetic.

A positive semidefinite matrix C stands for all e with |a·e| ≤ √(aᵀCa) for every a. If several
such errors add up, Σᵢ Cᵢ/wᵢ contains their sum for any weights wᵢ > 0 with Σw ≤ 1 (Cauchy's
inequality); the weights √tr Cᵢ make the trace least (theorem affine-checkpoint).
"""

from __future__ import annotations

import torch

from taut._base.rounding import EPS


def root(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """√(aᵀCa) of each row from above: the form errs by γ of (|a|·√diag C)²."""
    value = ((a @ c) * a).sum(dim=-1).clamp(min=0.0)
    most = a.abs() @ c.diagonal(dim1=-2, dim2=-1).clamp(min=0.0).sqrt()
    doubt = (2 * a.shape[-1] + 16) * EPS * most.square()
    found: torch.Tensor = (value + doubt).sqrt() * (1 + 1e-12)
    return found


def combined(parts: list[torch.Tensor]) -> torch.Tensor:
    """One ellipsoid (..., n, n) that contains the sum of several."""
    if len(parts) == 1:
        return parts[0]
    traces = [trace(part) for part in parts]
    roots = [trace.clamp(min=0.0).sqrt() for trace in traces]
    total = torch.stack(roots).sum(dim=0)
    found = torch.zeros_like(parts[0])
    for part, size in zip(parts, roots, strict=True):
        factor = torch.where(size > 0, total / torch.where(size > 0, size, 1.0), 0.0)
        found = found + part * factor[..., None, None]
    return with_ridge(found, 16 * EPS * trace(found))


def with_ridge(c: torch.Tensor, ridge: torch.Tensor) -> torch.Tensor:
    """C enlarged by 1e-12 of itself and by a multiple of the identity, (...,)."""
    found = c * (1 + 1e-12)
    found.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
    return found


def roots(c: torch.Tensor) -> torch.Tensor:
    """Largest value of every entry."""
    return c.diagonal(dim1=-2, dim2=-1).clamp(min=0.0).sqrt()


def trace(c: torch.Tensor) -> torch.Tensor:
    """The sum of the diagonal: of the squares of all axes."""
    return c.diagonal(dim1=-2, dim2=-1).sum(dim=-1)


def boxed(half: torch.Tensor) -> torch.Tensor:
    """Diagonal of an ellipsoid around a box: (Σ|a|h)² ≤ Σh·Σa²h."""
    return half * half.sum(dim=-1, keepdim=True) * (1 + 1e-9)


def safe(c: torch.Tensor, most: torch.Tensor, terms: int) -> torch.Tensor:
    """Add to the diagonal what rounding can do: γ of mᵢΣm in all of row i."""
    most = most[..., 0]
    ridge = (4 * terms + 64) * EPS * most * most.sum(dim=-1, keepdim=True)
    c.diagonal(dim1=-2, dim2=-1).add_(ridge)
    return c


def product(blocks: torch.Tensor, c: torch.Tensor | None) -> torch.Tensor:
    """M C Mᵀ of every token, with a ridge for its rounding; C is the identity if it is None."""
    found = blocks @ blocks.mT if c is None else blocks @ c @ blocks.mT
    sizes = torch.ones_like(blocks[:, 0]) if c is None else roots(c)
    return safe(found, blocks.abs() @ sizes[..., None], blocks.shape[-1])


def turned(
    old: int, wide: int, joint: torch.Tensor, blocks: torch.Tensor, token: torch.Tensor
) -> torch.Tensor:
    """M C Mᵀ of all of (old·wide)², if every token depends on one token only."""
    many, width = blocks.shape[:2]
    grid = joint.reshape(old, wide, old * wide)
    half = (blocks @ grid[token]).reshape(many * width, old, wide)
    found = torch.cat([half[:, t] @ m.mT for m, t in zip(blocks, token.tolist(), strict=True)], 1)
    sizes = roots(joint).reshape(old, wide)[token]
    most = (blocks.abs() @ sizes[..., None]).reshape(-1, 1)
    return safe(found, most, wide)
