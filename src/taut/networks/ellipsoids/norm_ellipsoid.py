"""LayerNorm and RMSNorm beyond their derivative (theorem ellipsoid-norm)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from taut._base.matrix_norm import largest_eigenvalues
from taut.networks.ellipsoids.ellipsoid import box, reach, series, smaller, summed, widened
from taut.networks.propagation.node import UnboundedError

ORDERS = 24  # of the power series, at most
FARTHEST = 0.9  # of α and ω, for which the series are used


def norm_error(
    y: torch.Tensor,
    gain: torch.Tensor,
    power: torch.Tensor,
    epsilon: float,
    linear: torch.Tensor,
    beyond: torch.Tensor,
) -> tuple[torch.Tensor, float]:
    """The ellipsoid of what gain∘y/√power does beyond its derivative, and how small √power gets.

    A move δ = αy + δ⊥ along y changes nothing but the length of y + δ. With s = δ⊥/(1 + α) and
    ω = |s|²/(d·power) + (ε/power)((1 + α)⁻² − 1) the output, times √power/gain, is
    (y + s)(1 + ω)^(−1/2). Its terms of second order are −y|δ⊥|²/(2d·power) − αδ⊥. √power gets
    (1 + α)√(1 + ω) times as large; the least of that for any token is returned.

    Parameters
    ----------
    y
        Where the tokens are, (tokens, width).
    power
        Their mean squares and epsilon, (tokens,).
    linear, beyond
        Ellipsoids of how far they move, (tokens·width)²: their linear change, and the rest.
    """
    tokens, width = y.shape
    total = width * power
    if not bool((y.square().sum(dim=-1) > 0).all()):
        raise UnboundedError
    full = apart(y, summed(linear, beyond))
    move = full.across.reshape(tokens * width, tokens * width)
    move = widened(move, 4 * width, full.size)
    along = widened(full.along, 4 * width)
    far = reach(along)
    if not bool((far < FARTHEST).all()):
        raise UnboundedError
    one = torch.ones_like(far)
    orders = range(2, ORDERS + 1)
    rests = [far ** (k + 1) / (1 - far) for k in orders]
    curved = summed(*series(along, [one * (-1) ** k for k in orders], rests[1:], 2))
    shrunk = summed(along, curved)  # α/(1 + α), with α²/(1 + α) before it
    squares, top = squares_of(move, total, width)
    change = widened(squares * summed(4 * shrunk, shrunk * shrunk), 8)
    lost = epsilon / power * (1 + 1e-9)
    lost_all = lost * ((1 - far) ** -2 - 1)
    lost_second = lost * far**2 * (3 - 2 * far) / (1 - far) ** 2
    scaled = summed(squares, change)
    omega = summed(scaled, box(lost_all))
    wide = (top * (1 - far) ** -2 + lost_all) * (1 + 1e-9)
    if not bool((wide < FARTHEST).all()):
        raise UnboundedError
    binomial = [1.0]
    for k in range(1, ORDERS + 2):
        binomial.append(binomial[-1] * (0.5 - k) / k)
    # the coefficients shrink, so that the rest is a geometric series
    rests = [abs(each) * wide**k / (1 - wide) for k, each in enumerate(binomial)][4:]
    root = summed(*series(omega, [one * each for each in binomial[2:-1]], rests, 2))
    moved = summed(move, widened(move * _entries(shrunk, width), 8))  # s
    half, start = summed(linear, beyond / 4), apart(y, linear)
    parts = (
        bilinear_forms(y, total, start, start) / 4,
        bilinear_forms(y, total, apart(y, beyond), apart(y, half)),
        _along(y, summed(change / 4, box(lost_second / 2), root)),
        smaller(cubic_forms(moved, total, width), moved * _entries(scaled / 4, width)),
        moved * _entries(summed(box(lost_all / 2), root), width),
        move * _entries(curved, width),
    )
    scale = (gain / power.sqrt()[:, None]).flatten()
    found = widened(scale[:, None] * summed(*parts) * scale, 8)
    return found, float(((1 - far) * (1 - wide).sqrt()).min())


@dataclass(frozen=True)
class Apart:
    """Inner products of a move: along y (α of each token), across it (δ⊥), and of both.

    ``across`` is (tokens, width, tokens, width), ``mixed`` that of α of a token with entries of δ⊥
    of another. ``size`` are squares of what the sums for each entry of δ⊥ add up to at most.
    """

    along: torch.Tensor
    across: torch.Tensor
    mixed: torch.Tensor
    size: torch.Tensor


def apart(y: torch.Tensor, matrix: torch.Tensor) -> Apart:
    """Moves of an ellipsoid along y and across it."""
    tokens, width = y.shape
    g = matrix.reshape(tokens, width, tokens, width)
    unit = y / y.square().sum(dim=-1, keepdim=True)
    first = torch.einsum("ti,tisj->tsj", unit, g)
    along = torch.einsum("tsj,sj->ts", first, unit)
    mixed = first - along[:, :, None] * y
    across = g - y[:, :, None, None] * first[:, None]
    second = torch.einsum("tisj,sj->tis", across, unit)
    across = across - second[..., None] * y
    roots = reach(matrix).reshape(tokens, width)
    size = roots + y.abs() * (unit.abs() * roots).sum(dim=-1, keepdim=True)
    return Apart((along + along.T) / 2, across, mixed, size.flatten().square())


def bilinear_forms(y: torch.Tensor, total: torch.Tensor, b: Apart, c: Apart) -> torch.Tensor:
    """Inner products of the forms −y(b⊥·c⊥)/total − b⊥α_c − c⊥α_b of all entries."""
    tokens, width = y.shape
    squares = (b.across * c.across).sum(dim=(1, 3)) / (total[:, None] * total)
    other = torch.einsum("tksj,stk->tsj", b.across, c.mixed)
    other = (other + torch.einsum("tksj,stk->tsj", c.across, b.mixed)) / total[:, None, None]
    cross = y[:, :, None, None] * other[:, None]
    swapped = b.mixed.permute(1, 2, 0)[:, :, :, None] * c.mixed[:, None]
    found = y[:, :, None, None] * squares[:, None, :, None] * y
    found += cross + cross.permute(2, 3, 0, 1) + swapped + swapped.permute(2, 3, 0, 1)
    found += b.across * c.along[:, None, :, None] + c.across * b.along[:, None, :, None]
    flat = found.reshape(tokens * width, tokens * width)
    wide_b, wide_c = (each.size.reshape(tokens, width) for each in (b, c))
    both = (wide_b.sum(dim=1) * wide_c.sum(dim=1)).sqrt() / total
    size = y.abs() * both[:, None] + wide_b.sqrt() * reach(c.along)[:, None]
    size = size + wide_c.sqrt() * reach(b.along)[:, None]
    return widened((flat + flat.T) / 2, 16 * (width + tokens), 4 * size.flatten() ** 2)


def cubic_forms(matrix: torch.Tensor, total: torch.Tensor, width: int) -> torch.Tensor:
    """The ellipsoid of s|s|²/(2·total) for s in another: inner products of symmetric forms."""
    tokens = len(total)
    x = matrix.reshape(tokens, width, tokens, width).permute(0, 2, 1, 3)
    found = x * x.square().sum(dim=(2, 3), keepdim=True) + 2 * (x @ x.mT @ x)
    found = found / (12 * total[:, None] * total)[:, :, None, None]
    spread = matrix.diagonal().reshape(tokens, width)
    size = spread * (spread.sum(dim=1, keepdim=True) / total[:, None]) ** 2
    flat = found.permute(0, 2, 1, 3).reshape(matrix.shape)
    return widened((flat + flat.T) / 2, 8 * width**2, size.flatten())


def squares_of(
    matrix: torch.Tensor, total: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ellipsoid of |s|²/total of all tokens for s in another, and the largest of each.

    It is that of quadratic forms or, as squares are not negative, that of Σ w/top ≤ λ, whose
    corners have one w = λ·top. λ is at most a sum of norms of blocks.
    """
    tokens = len(total)
    g = matrix.reshape(tokens, width, tokens, width)
    own = torch.stack([g[each, :, each] for each in range(tokens)])
    top = torch.from_numpy(largest_eigenvalues(own.cpu().numpy())).to(matrix)
    top = top / total * (1 + 1e-9)
    norms = g.square().sum(dim=(1, 3)).sqrt()
    size = (top * total).clamp(min=1e-300).sqrt()
    norms = norms / size[:, None] / size
    norms.fill_diagonal_(1.0)
    together = float(norms.sum(dim=1).max()) * (1 + 1e-9)
    forms = g.square().sum(dim=(1, 3)) / (total[:, None] * total)
    corners = torch.diag((together * top).square() * (1 + 1e-9))
    return smaller(widened(forms, 4 * width**2), corners), top


def _along(y: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Numbers of an ellipsoid times y."""
    found = y[:, :, None, None] * matrix[:, None, :, None] * y
    return found.reshape(y.numel(), y.numel())


def _entries(matrix: torch.Tensor, width: int) -> torch.Tensor:
    """A number for each token as one for each entry."""
    return matrix.repeat_interleave(width, dim=0).repeat_interleave(width, dim=1)
