"""LayerNorm and RMSNorm beyond their derivative (theorem ellipsoid-norm)."""

from __future__ import annotations

import torch

from taut._base.matrix_norm import largest_eigenvalues
from taut.networks.ellipsoids.ellipsoid import reach, series, summed, widened
from taut.networks.propagation.node import UnboundedError

ORDERS = 24  # of the power series of (1 + τ)^(−1/2), at most
FARTHEST = 0.9  # of τ, for which the series is used


def norm_error(
    y: torch.Tensor, gain: torch.Tensor, power: torch.Tensor, matrix: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """The ellipsoid of what gain∘y/√power does beyond its derivative, and how far τ can be.

    With t and w as in :class:`NormNode`, τ = 2t + w and φ = (1 + τ)^(−1/2), the output moves by its
    derivative and, times σ₀/gain, by y₀(3t²/2 − w/2) − δt + y₀(φ − 1 + t + w/2 − 3t²/2) +
    δ(φ − 1 + t). The first two terms are one quadratic form, whose matrix of inner products is
    written out; the others are of third order.

    Parameters
    ----------
    y
        Where the tokens are, (tokens, width).
    power
        Their mean squares and epsilon, (tokens,).
    matrix
        The ellipsoid of how far they move, (tokens·width)².
    """
    tokens, width = y.shape
    total = width * power
    g = matrix.reshape(tokens, width, tokens, width)
    along = torch.einsum("ti,tisj->tsj", y, g) / total[:, None, None]  # t and each entry
    t = torch.einsum("tsj,sj->ts", along, y) / total
    t = widened((t + t.T) / 2, 4 * width)
    w = widened(g.square().sum(dim=(1, 3)) / (total[:, None] * total), 4 * width**2)
    own = torch.stack([g[each, :, each] for each in range(tokens)])
    top = torch.from_numpy(largest_eigenvalues(own.cpu().numpy())).to(y)
    far_t, far_w = reach(t), top / total * (1 + 1e-9)
    far = (2 * far_t + far_w) * (1 + 1e-9)
    if not bool((far < FARTHEST).all()):
        raise UnboundedError
    quadratic = _quadratic(y, total, g, along, t, w)
    tau = summed(4 * t, w)
    binomial = [1.0]
    for k in range(1, ORDERS + 2):
        binomial.append(binomial[-1] * (0.5 - k) / k)
    one = torch.ones_like(far)
    # the coefficients shrink, so that the rest is a geometric series
    rests = [abs(each) * far**k / (1 - far) for k, each in enumerate(binomial)][4:]
    squares, higher = series(tau, [one * each for each in binomial[2:-1]], rests, 2)
    third = summed(2.25 * t * w, 0.140625 * w * w, higher)
    second = summed(w / 4, squares, higher)
    cubic = y[:, :, None, None] * third[:, None, :, None] * y
    product = g * second[:, None, :, None]
    shape = (tokens * width, tokens * width)
    scale = (gain / power.sqrt()[:, None]).flatten()
    found = summed(quadratic, cubic.reshape(shape), product.reshape(shape))
    return widened(scale[:, None] * found * scale, 8), float(far.max())


def _quadratic(
    y: torch.Tensor,
    total: torch.Tensor,
    g: torch.Tensor,
    along: torch.Tensor,
    t: torch.Tensor,
    w: torch.Tensor,
) -> torch.Tensor:
    """Inner products of the forms y₀(3t²/2 − w/2) − δt of all entries."""
    tokens, width = y.shape
    mixed = along.square().sum(dim=-1) / total  # t² of one token with w of another
    own = 2.25 * t.square() - 0.75 * (mixed + mixed.T) + 0.25 * w
    other = 1.5 * along * t[:, :, None] - 0.5 * torch.einsum(
        "tksi,stk->tsi", g, along
    ) / total[:, None, None]  # fmt: skip
    cross = y[:, :, None, None] * other[:, None]
    found = y[:, :, None, None] * own[:, None, :, None] * y - cross - cross.permute(2, 3, 0, 1)
    swapped = along.permute(1, 2, 0)[:, :, :, None] * along[:, None]
    found = found + (g * t[:, None, :, None] + swapped) / 2
    spread = g.diagonal(dim1=0, dim2=2).diagonal(dim1=0, dim2=1)  # (tokens, width)
    far, wide = reach(t)[:, None], spread.sum(dim=-1, keepdim=True) / total[:, None]
    size = y.abs() * (1.5 * far**2 + wide / 2) + spread.clamp(min=0.0).sqrt() * far
    flat = found.reshape(tokens * width, tokens * width)
    return widened((flat + flat.T) / 2, 16 * (width + tokens), 4 * size.flatten() ** 2)
