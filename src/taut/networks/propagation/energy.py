"""Energy: how large a weighted sum of squares of a token's entries can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.matrix_norm import largest_eigenvalues
from taut._base.rounding import EPS
from taut.networks.propagation.node import Node
from taut.networks.propagation.ellipsoid import boxed, combined, product
from taut.networks.propagation.reached import TINY

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


def energy(engine: Engine, node: Node, weights: torch.Tensor) -> torch.Tensor:
    """Largest Σ w·δ² of each token of a node whose box is known, for weights (tokens, width) ≥ 0.

    If every entry is a row a on one token of a checkpoint, δ = a·(Lu + E) + rest, and √Σwδ² is at
    most the sum of the three roots. With RRᵀ ≥ Σ w a aᵀ the first two are those of Rᵀ(Lu) and RᵀE.
    """
    assert node.box is not None
    plain = (weights * node.box.square()).sum(dim=-1) * (1 + 1e-9)
    index = node.needed.nonzero()[:, 0]
    begin, rows, more = node.entry_rows(index)
    found = engine.carry([(begin, rows)], trail=True)
    trail = found.trail
    assert trail is not None
    ends = trail.ends
    if engine.checkpoint is None or trail.stop == 0 or trail.parts or ends is None or ends.token is None:
        return plain
    token = ends.token.reshape(len(index), -1)[:, 0]
    blocks = ends.values[:, 0].reshape(len(index), node.width, -1)
    scaled = blocks * weights[index].sqrt()[..., None]
    gram = scaled.mT @ scaled
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    ridge = (node.width + 4 * gram.shape[-1] + 64) * 4 * EPS * trace + 1e-280
    factor, failed = torch.linalg.cholesky_ex(gram + ridge[:, None, None] * eye)
    if bool(failed.any()):
        return plain
    at = engine.checkpoint[1]
    linear = engine.inputs.square(factor.mT @ at.linear[token])
    # products err by γ of the lengths of their factors
    size = factor.square().sum(dim=(1, 2)) * (1 + 1e-9)
    linear = linear + 8 * (gram.shape[-1] + 8) * EPS * size * at.sizes[token].square()
    spread = at.scatter.by_token()[token]
    error = factor.mT @ spread @ factor
    trace = spread.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    top = torch.from_numpy(largest_eigenvalues(error.cpu().numpy())).to(linear)
    top = top + 8 * (gram.shape[-1] + 8) * EPS * size * trace
    rest = (found.shift.abs() + found.rounding + more + TINY).reshape(len(index), -1)
    last = (weights[index] * rest.square()).sum(dim=-1)
    total = (linear.sqrt() + top.sqrt() + last.sqrt()).square() * (1 + 1e-9)
    best = torch.zeros_like(plain)
    best[index] = torch.minimum(plain[index], total)
    return best


def gram(engine: Engine, node: Node) -> torch.Tensor | None:
    """An ellipsoid of the deviation of each token."""
    index = node.needed.nonzero()[:, 0]
    begin, rows, more = node.entry_rows(index)
    found = engine.carry([(begin, rows)], trail=True)
    trail = found.trail
    assert trail is not None
    ends = trail.ends
    if engine.checkpoint is None or trail.stop == 0 or trail.parts or ends is None or ends.token is None:
        return None
    token = ends.token.reshape(len(index), -1)[:, 0]
    blocks = ends.values[:, 0].reshape(len(index), node.width, -1)
    at = engine.checkpoint[1].shape(engine.inputs.far)
    rest = (found.shift.abs() + found.rounding + more + TINY).reshape(len(index), -1)
    total = combined([product(blocks, at[token]), torch.diag_embed(boxed(rest))])
    whole = total.new_zeros(node.tokens, *total.shape[1:])
    whole[index] = total
    return whole
