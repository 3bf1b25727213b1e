"""Where errors arise: what an operation adds to its linear part, as an ellipsoid of each token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.activation_lines import CELLS
from taut.networks.propagation.attention_node import AttentionNode
from taut.networks.propagation.attention_products import products
from taut.networks.propagation.constant_node import ConstantNode
from taut.networks.propagation.ellipsoid import boxed, combined, trace, with_ridge
from taut.networks.propagation.node import Node
from taut.networks.propagation.norm_nodes import NormNode
from taut.networks.propagation.pointwise_nodes import ActivationNode, ProductNode
from taut.networks.propagation.rows import heads_apart
from taut.networks.propagation.source import Source

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


def source(node: Node, engine: Engine) -> Source | None:
    """What a node adds; None if it is linear."""
    if isinstance(node, ActivationNode):
        return _activation(node, engine)
    if isinstance(node, ProductNode):
        return Source(torch.zeros_like(node.centre), boxed(node.both))
    if isinstance(node, NormNode):
        return _norm(node, engine)
    if isinstance(node, AttentionNode):
        return _attention(node, engine)
    if isinstance(node, ConstantNode):
        return Source(torch.zeros_like(node.centre), torch.full_like(node.centre, node.radius_of_all**2))
    return None


def _activation(node: ActivationNode, engine: Engine) -> Source:
    """By the lines of every entry, or by a polynomial of all entries of a token together."""
    found = node.lines
    assert found is not None
    (x,) = node.parents
    assert x.box is not None
    half, middle = (found.high - found.low) / 2, (found.high + found.low) / 2
    plain = Source(middle, boxed(half))
    if node.act.bend == float("inf"):
        return plain
    gram = engine.gram(x)
    if gram is None:
        return plain
    *factors, rest = polynomial(node.act, x.centre, x.box, found.slope)
    power, parts = torch.ones_like(gram), []
    for factor in factors:
        power = power * gram
        term = power * factor[:, :, None] * factor[:, None]
        parts.append(with_ridge(term, 16 * EPS * trace(term)))
    full = combined([*parts, torch.diag_embed(boxed(rest))])
    better = (trace(full) < plain.axes.sum(dim=-1))[:, None]
    full = torch.where(better[..., None], full, torch.diag_embed(plain.axes))
    return Source(torch.where(better, 0.0, middle), full=full)


POINTS = 64  # on each side of the middle


def polynomial(act, middle, radius, slope):
    """Coefficients of z, z² and z³ in φ(m + z) − φ(m) − slope·z, and how far it is from these.

    Any coefficients are sound; these come from the values at both ends and half-way. On a grid of
    step h the distance exceeds its values there by at most (bend + 2|c| + 6|k|r)h²/8.
    """
    radius = radius.clamp(min=1e-150)

    def rest(z):
        return act.function(middle + z) - act.function(middle) - slope * z

    ends, halves = (torch.stack((rest(-z), rest(z))) for z in (radius, radius / 2))
    odd_end = (ends[1] - ends[0]) / 2 / radius
    odd_half = (halves[1] - halves[0]) / radius
    even_end = (ends[1] + ends[0]) / 2 / radius**2
    even_half = (halves[1] + halves[0]) / 2 / (radius / 2) ** 2
    cubic = (odd_end - odd_half) * (4 / 3) / radius**2
    first, square = odd_end - cubic * radius**2, (even_end + even_half) / 2
    first, square, cubic = (torch.nan_to_num(c, 0.0, 0.0, 0.0) for c in (first, square, cubic))
    worst = torch.zeros_like(middle)
    for step in torch.linspace(-1, 1, 2 * POINTS + 1, dtype=middle.dtype).tolist():
        z = step * radius
        worst = torch.maximum(worst, (rest(z) - z * (first + z * (square + z * cubic))).abs())
    size = act.constant * (middle.abs() + radius) + act.at_zero + slope.abs() * radius
    size = size + radius * (first.abs() + radius * (square.abs() + radius * cubic.abs()))
    cell = radius / POINTS * (1 + 1e-9) + 4 * EPS * (middle.abs() + radius)
    bend = act.bend + 2 * square.abs() + 6 * cubic.abs() * radius
    over = bend * cell**2 / 8 + 64 * EPS * size + 2 * act.jump
    return first, square, cubic, (worst + over) * (1 + 1e-9)


def _norm(node: NormNode, engine: Engine) -> Source:
    (y,) = node.parents
    y0 = heads_apart(y.centre, node.heads)
    spread = node.spread
    middle = y0 * (node.middle / spread)[..., None] * node.gain
    axis = y0 * (node.half / spread)[..., None] * node.gain
    if node.heads == 1:
        rank = axis[:, 0, :, None] * axis[:, 0, None, :]
        moved = shape(y, engine) * node.gain[:, None] * node.gain
        moved = moved * ((node.far / spread).square())[..., None] * (1 + 1e-9)
        full = combined([rank, moved])
        ball = node.gain.square() * node.most.square()
        full = torch.where(node.lost[..., None], torch.diag_embed(ball), full)
        return Source(middle.flatten(1), full=full)
    gain = float(node.gain.abs().max())
    assert node.factors is not None
    ball = axis.norm(dim=-1) + gain * node.factors.lengths * node.far / spread
    ball = torch.where(node.lost, gain * node.most, ball) * (1 + 1e-9)
    axes = boxed(ball)[..., None].expand(axis.shape)
    return Source(middle.flatten(1), axes.flatten(1))


def _attention(node: AttentionNode, engine: Engine) -> Source:
    """The better of two: every head by itself, or all heads together."""
    v = node.split(node.values.centre)
    apart = v[:, None] - (node.p @ v)[:, :, None]  # heads, queries, keys, width
    # of the values, (heads, keys, width, width)
    shapes = head_shapes(node.values, node.kv_heads, engine).repeat_interleave(node.group, dim=0)
    plain, offset = _heads_apart(node, apart, shapes)
    joint = products(node, engine)
    if joint is None:
        joint = _heads_together(node, apart, shapes, engine)
    if joint is None:
        return Source(offset, full=plain)
    better = trace(joint) < trace(plain)
    full = torch.where(better[:, None, None], joint, plain)
    return Source(torch.where(better[:, None], 0.0, offset), full=full)


def _heads_apart(
    node: AttentionNode, apart: torch.Tensor, shapes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ellipsoids and offsets by the limits of the softmax remainder, of bilinear scores and δp·δv."""
    assert node.found is not None
    assert node.change is not None
    scores, remainder = node.found
    half, middle = (remainder.high + remainder.low) / 2, (remainder.high - remainder.low) / 2
    rest = half + node.p * scores.bilinear
    first = _outer(rest * rest.sum(dim=-1, keepdim=True), apart)
    size = trace(shapes).sqrt()
    change = remainder.change
    weight = (change * size[:, None]).sum(dim=-1)
    factors = torch.where(size[:, None] > 0, change / size[:, None].clamp(min=1e-300), 0.0)
    second = torch.einsum("hij,hjde->hide", factors, shapes) * weight[..., None, None]
    if node.change.length is not None:
        other = shapes.sum(dim=1)[:, None] * node.change.length.square()[..., None, None]
        smaller = trace(other) < trace(second)
        second = torch.where(smaller[..., None, None], other, second)
    full = _heads_joined(combined([first, second]))
    offset = torch.einsum("hij,hijd->hid", middle, apart).transpose(0, 1).flatten(1)
    return full, offset


def _heads_together(
    node: AttentionNode, apart: torch.Tensor, shapes: torch.Tensor, engine: Engine
) -> torch.Tensor | None:
    """Ellipsoids by the energy of all centred scores of a query, which all heads share."""
    assert node.found is not None
    scores, remainder = node.found
    joint = node.joint
    if joint is None or not joint.fits:
        return None
    w = joint.weights * node.seen  # heads, queries, keys
    linear = (w.sqrt()[..., None] * joint.linear).transpose(0, 1).flatten(1, 2)
    top = engine.inputs.square(linear)  # queries
    rest = (w * scores.rest.square()).sum(dim=(0, 2))
    shared = (top.sqrt() + rest.sqrt()).square() * (1 + 1e-9)
    gap = remainder.gap * (1 + 1e-9)
    beyond = w * scores.centred + gap * node.p
    over = 1 / w.clamp(min=1e-300)
    first = _outer(beyond.square() * over, apart) * shared[:, None, None]
    changed = (node.p * joint.chi).square() * over
    second = torch.einsum("hij,hjde->hide", changed, shapes) * shared[:, None, None]
    third = torch.einsum("hij,hjde->hide", node.p * gap.square(), shapes)
    long_k = engine.factors(node.keys, node.kv_heads).lengths.mT.repeat_interleave(node.group, 0)
    rho = node.p * long_k[:, None] * node.seen
    long_q = engine.energy(node.queries, torch.ones_like(node.queries.centre))
    fourth = _outer(rho * rho.sum(dim=-1, keepdim=True), apart)
    fourth = fourth * (long_q * node.scale**2)[:, None, None]
    if node.softcap is not None:
        return None
    parts = [_diagonal(each) for each in (first, second, fourth)]
    return combined([*parts, _heads_joined(third)])


def _outer(weights: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Σⱼ w·vvᵀ, (heads, queries, width, width)."""
    scaled = weights.sqrt()[..., None] * vectors
    return scaled.mT @ scaled * (1 + 1e-9)


def _diagonal(blocks: torch.Tensor) -> torch.Tensor:
    """Blocks (heads, tokens, width, width) on a diagonal, (tokens, heads·width, heads·width)."""
    full = torch.stack([torch.block_diag(*heads) for heads in blocks.transpose(0, 1)])
    return with_ridge(full, 256 * EPS * trace(full)) * (1 + 1e-9)


def _heads_joined(blocks: torch.Tensor) -> torch.Tensor:
    """The same for heads whose errors have nothing to do with each other."""
    root = trace(blocks).clamp(min=0.0).sqrt()
    weight = torch.where(root > 0, root.sum(dim=0) / root.clamp(min=1e-300), 0.0)
    return _diagonal(blocks * weight[..., None, None])


def shape(node: Node, engine: Engine) -> torch.Tensor:
    """An ellipsoid that contains the deviation of each token, (tokens, width, width)."""
    return head_shapes(node, 1, engine)[0]


def head_shapes(node: Node, heads: int, engine: Engine) -> torch.Tensor:
    """The same for each head, (heads, tokens, width, width)."""
    factors = engine.factors(node, heads)
    linear = factors.linear
    gram = linear @ linear.mT
    doubt = (linear.shape[-1] + 32) * 4 * EPS * trace(gram)
    gram = with_ridge(gram, doubt) * (engine.inputs.far**2 * (1 + 1e-9))
    errors = factors.scatter
    if errors is None:
        errors = torch.diag_embed(boxed(factors.errors))
    return combined([gram, errors]).transpose(0, 1)


