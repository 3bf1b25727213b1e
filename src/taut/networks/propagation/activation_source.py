"""What an activation adds to its chord, as an ellipsoid (theorem affine-checkpoint)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.operations.activation_slopes import Activation
from taut.networks.propagation.ellipsoid import boxed, combined, product, trace, with_ridge
from taut.networks.propagation.linear_nodes import LinearNode
from taut.networks.propagation.local_rows import LocalRows, local_rows, token_gram
from taut.networks.propagation.pointwise_nodes import ActivationNode
from taut.networks.propagation.source import Source

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine

POINTS = 64  # of the grid, on each side of the middle
Coefficients = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def activation_source(node: ActivationNode, reader: LinearNode | None, engine: Engine) -> Source:
    """By the lines of every entry, or by a polynomial of all entries of a token together.

    If one linear map reads the activation, the ellipsoid is that of what comes out of it.
    """
    found = node.lines
    assert found is not None
    (x,) = node.parents
    assert x.box is not None
    half, offset = (found.high - found.low) / 2, (found.high + found.low) / 2
    axes = boxed(half)
    local = None if node.act.bend == float("inf") else local_rows(x, engine)
    if local is None:
        return _read(Source(offset, axes=axes), reader)
    assert engine.checkpoint is not None
    shapes = engine.checkpoint[1].shape(engine.inputs.far)
    terms = polynomial(node.act, x.centre, x.box, found.slope)
    width = node.width if reader is None else reader.width
    full = axes.new_zeros(node.tokens, width, width)
    for place, token in enumerate(local.tokens.tolist()):
        best = _together(local, place, shapes, tuple(term[token] for term in terms))
        if trace(best) < axes[token].sum():
            offset[token] = 0.0
        else:
            best = torch.diag_embed(axes[token])
        full[token] = best if reader is None else product(reader.weight[None], best[None])[0]
    source = Source(offset, full=full)
    return source if reader is None else source.moved(reader)


def _read(source: Source, reader: LinearNode | None) -> Source:
    if reader is None:
        return source
    assert source.axes is not None
    scaled = reader.weight * source.axes.sqrt()[:, None]
    return source._replace(axes=None, full=product(scaled, None)).moved(reader)


def _together(
    local: LocalRows, place: int, shapes: torch.Tensor, terms: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    """Σ cₖ∘zᵏ for z in an ellipsoid G: zᵏ is in that of the k-th powers of all entries of G.

    With z = Xu, |u| ≤ 1, Σ aⱼzⱼᵏ is at most ‖Σ aⱼ xⱼ⊗…⊗xⱼ‖, whose square is Σ aᵢaⱼGᵢⱼᵏ.
    """
    gram = token_gram(local, place, shapes)
    power, parts = torch.ones_like(gram), []
    *factors, rest = terms
    for factor in factors:
        power = power * gram
        term = power * factor[:, None] * factor
        parts.append(with_ridge(term, 32 * EPS * trace(term)))
    return combined([*parts, torch.diag_embed(boxed(rest))])


def polynomial(
    act: Activation, middle: torch.Tensor, radius: torch.Tensor, slope: torch.Tensor
) -> Coefficients:
    """Coefficients of z, z² and z³ in φ(m + z) − φ(m) − slope·z, and how far it is from these.

    Any coefficients are sound; these come from the values at both ends and half-way. On a grid of
    step h the distance exceeds its values there by at most (bend + 2|c| + 6|k|r)h²/8.
    """
    radius = radius.clamp(min=1e-150)
    here = act.function(middle)

    def beyond(z: torch.Tensor) -> torch.Tensor:
        return act.function(middle + z) - here - slope * z

    ends, halves = (torch.stack((beyond(-z), beyond(z))) for z in (radius, radius / 2))
    odd_end, odd_half = (ends[1] - ends[0]) / 2 / radius, (halves[1] - halves[0]) / radius
    even_end, even_half = (ends[1] + ends[0]) / 2 / radius**2, halves.sum(dim=0) * 2 / radius**2
    cubic = (odd_end - odd_half) * (4 / 3) / radius**2
    first, square = odd_end - cubic * radius**2, (even_end + even_half) / 2
    first, square, cubic = (torch.nan_to_num(c, 0.0, 0.0, 0.0) for c in (first, square, cubic))
    worst = torch.zeros_like(middle)
    for step in range(-POINTS, POINTS + 1):
        z = radius * (step / POINTS)
        worst = torch.maximum(worst, (beyond(z) - z * (first + z * (square + z * cubic))).abs())
    size = act.constant * (middle.abs() + radius) + act.at_zero + slope.abs() * radius
    size = size + radius * (first.abs() + radius * (square.abs() + radius * cubic.abs()))
    cell = radius / POINTS * (1 + 1e-9) + 4 * EPS * (middle.abs() + radius)
    bend = act.bend + 2 * square.abs() + 6 * cubic.abs() * radius
    over = bend * cell**2 / 8 + 64 * EPS * size + 2 * act.jump
    return first, square, cubic, (worst + over) * (1 + 1e-9)
