"""What attention adds to its derivative, as an ellipsoid (theorem affine-checkpoint)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.attention_node import AttentionNode
from taut.networks.propagation.attention_products import products
from taut.networks.propagation.ellipsoid import block_diagonal, combined, trace, with_ridge
from taut.networks.propagation.norm_source import head_shapes
from taut.networks.propagation.source import Source

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


def attention_source(node: AttentionNode, engine: Engine) -> Source:
    """The better of two: products of scores and values, or the limits of every head by itself."""
    plain, offset = _heads_apart(node, engine)
    joint = products(node, engine)
    if joint is None:
        return Source(offset, full=plain)
    better = trace(joint) < trace(plain)
    full = torch.where(better[:, None, None], joint, plain)
    return Source(torch.where(better[:, None], 0.0, offset), full=full)


def _heads_apart(node: AttentionNode, engine: Engine) -> tuple[torch.Tensor, torch.Tensor]:
    """Ellipsoids and offsets by the limits of the softmax remainder, of scores and of δp·δv."""
    assert node.found is not None
    assert node.change is not None
    scores, remainder = node.found
    v = node.split(node.values.centre)
    apart = v[:, None] - (node.p @ v)[:, :, None]  # heads, queries, keys, width
    # of the values, (heads, keys, width, width)
    shapes = head_shapes(node.values, node.kv_heads, engine).repeat_interleave(node.group, dim=0)
    half, middle = (remainder.high + remainder.low) / 2, (remainder.high - remainder.low) / 2
    rest = half + node.p * scores.bilinear
    scaled = (rest * rest.sum(dim=-1, keepdim=True)).sqrt()[..., None] * apart
    first = scaled.mT @ scaled * (1 + 1e-9)
    size = trace(shapes).sqrt()
    change = remainder.change
    weight = (change * size[:, None]).sum(dim=-1)
    share = torch.where(size[:, None] > 0, change / size[:, None].clamp(min=1e-300), 0.0)
    second = torch.einsum("hij,hjde->hide", share, shapes) * weight[..., None, None]
    if node.change.length is not None:
        other = shapes.sum(dim=1)[:, None] * node.change.length.square()[..., None, None]
        smaller = trace(other) < trace(second)
        second = torch.where(smaller[..., None, None], other, second)
    both = combined([first, second * (1 + 1e-9)])
    # heads whose errors have nothing to do with each other
    root = trace(both).clamp(min=0.0).sqrt()
    share = torch.where(root > 0, root.sum(dim=0) / root.clamp(min=1e-300), 0.0)
    blocks = (both * share[..., None, None]).transpose(0, 1)
    full = block_diagonal(blocks)
    full = with_ridge(full, 256 * EPS * trace(full)) * (1 + 1e-9)
    offset = torch.einsum("hij,hijd->hid", middle, apart).transpose(0, 1).flatten(1)
    return full, offset
