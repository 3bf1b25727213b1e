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
    sizes = [trace(part).clamp(min=0.0).sqrt() for part in parts]
    total = torch.stack(sizes).sum(dim=0) * (1 + 1e-12)
    found = torch.zeros_like(parts[0])
    for part, size in zip(parts, sizes, strict=True):
        factor = torch.where(size > 0, total / torch.where(size > 0, size, 1.0), 0.0)
        found.addcmul_(part, factor[..., None, None])
    ridge = 32 * EPS * trace(found)
    found.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
    return found


def with_ridge(c: torch.Tensor, ridge: torch.Tensor) -> torch.Tensor:
    """C enlarged by 1e-12 of itself and by a multiple of the identity, (...,)."""
    found = c * (1 + 1e-12)
    found.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
    return found


def with_box(c: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
    """One ellipsoid (n, n) that contains the sum of another, which is overwritten, and a box."""
    size, other = trace(c).clamp(min=0.0).sqrt(), half.sum()
    if float(size) > 0:
        c.mul_((size + other) / size * (1 + 1e-12))
    share = (size + other) / other if float(other) > 0 else torch.zeros_like(other)
    ridge = 16 * EPS * trace(c)
    c.diagonal().add_(boxed(half) * share * (1 + 1e-12) + ridge)
    return c


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
    joint: torch.Tensor, old: int, blocks: torch.Tensor, token: torch.Tensor
) -> torch.Tensor:
    """M C Mᵀ for C of all ``old`` tokens, if every token depends on one of them only."""
    many, width = blocks.shape[:2]
    wide = len(joint) // old
    grid = joint.reshape(old, wide, old * wide)
    half = (blocks @ grid[token]).reshape(many * width, old, wide)
    found = torch.cat([half[:, t] @ m.mT for m, t in zip(blocks, token.tolist(), strict=True)], 1)
    sizes = roots(joint).reshape(old, wide)[token]
    most = (blocks.abs() @ sizes[..., None]).reshape(-1, 1)
    return safe(found, most, wide)


def block_diagonal(blocks: torch.Tensor) -> torch.Tensor:
    """(…, heads, width, width) as one matrix (…, heads·width, heads·width)."""
    heads, width = blocks.shape[-3:-1]
    found = blocks.new_zeros(*blocks.shape[:-3], heads, width, heads, width)
    for head in range(heads):
        found[..., head, :, head, :] = blocks[..., head, :, :]
    return found.reshape(*blocks.shape[:-3], heads * width, heads * width)
