"""What a norm layer adds to its derivative, as an ellipsoid (theorem affine-checkpoint)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ellipsoid import boxed, combined, trace, with_ridge
from taut.networks.propagation.node import Node
from taut.networks.propagation.norm_nodes import NormNode
from taut.networks.propagation.rows import heads_apart
from taut.networks.propagation.source import Source

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


def norm_source(node: NormNode, engine: Engine) -> Source:
    """y₀(φ − 1 + t) and δ(φ − 1): a line, and the ellipsoid of δ as often as φ allows."""
    (y,) = node.parents
    y0 = heads_apart(y.centre, node.heads)
    spread = node.spread[..., None]
    offset = (y0 * node.middle[..., None] / spread * node.gain).flatten(1)
    line = y0 * node.half[..., None] / spread * node.gain
    if node.heads == 1:
        moved = head_shapes(y, 1, engine)[0] * node.gain[:, None] * node.gain
        moved = moved * (node.far / node.spread).square()[..., None] * (1 + 1e-9)
        both = combined([line.mT @ line * (1 + 1e-9), moved])
        ball = torch.diag_embed(node.gain.square() * node.most.square() * (1 + 1e-9))
        full = torch.where(node.lost[..., None], ball, both)
        return Source(offset, full=with_ridge(full, 64 * EPS * trace(full)))
    assert node.factors is not None
    gain = float(node.gain.abs().max())
    ball = line.norm(dim=-1) + gain * node.factors.lengths * node.far / node.spread
    ball = torch.where(node.lost, gain * node.most, ball) * (1 + 1e-9)
    axes = boxed(ball)[..., None].expand(line.shape)
    return Source(offset, axes=axes.flatten(1))


def head_shapes(node: Node, heads: int, engine: Engine) -> torch.Tensor:
    """An ellipsoid of the deviation of each head and token, (heads, tokens, width, width)."""
    factors = engine.factors(node, heads)
    linear = factors.linear
    gram = linear @ linear.mT
    doubt = (linear.shape[-1] + 32) * 4 * EPS * trace(gram)
    gram = with_ridge(gram, doubt) * (engine.inputs.far**2 * (1 + 1e-9))
    errors = factors.scatter
    if errors is None:
        errors = torch.diag_embed(boxed(factors.errors))
    return combined([gram, errors]).transpose(0, 1)
