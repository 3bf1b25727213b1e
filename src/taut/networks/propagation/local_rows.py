"""Entries of a node that depend on one token of the last checkpoint each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ellipsoid import product, with_box
from taut.networks.propagation.node import Node
from taut.networks.propagation.reached import TINY

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class LocalRows(NamedTuple):
    """Every entry is a row on a token of the checkpoint, but for a small rest.

    Attributes
    ----------
    tokens
        Those that are needed.
    blocks
        The rows of each of these, (needed, width, width of the checkpoint).
    token
        Which token of the checkpoint they read, (needed,).
    rest
        How far each entry can be from its row, (needed, width).
    """

    tokens: torch.Tensor
    blocks: torch.Tensor
    token: torch.Tensor
    rest: torch.Tensor


def local_rows(node: Node, engine: Engine) -> LocalRows | None:
    """The entries as rows, or None if tokens mix or relaxations lie in between."""
    index = node.needed.nonzero()[:, 0]
    if engine.checkpoint is None:
        return None
    begin, rows, more = engine.entry_rows(node, index)
    found = engine.carry([(begin, rows)], trail=True, ends=True)
    trail = found.trail
    assert trail is not None
    if trail.stop != engine.checkpoint[0] or trail.parts:
        return None
    if trail.ends is None or trail.ends.token is None:
        return None
    blocks = trail.ends.values[:, 0].reshape(len(index), node.width, -1)
    rest = (found.shift.abs() + found.rounding + more + TINY) * (1 + 1e-9)
    rest = rest.reshape(len(index), -1) + 16 * EPS * node.centre.abs()[index]
    return LocalRows(index, blocks, trail.ends.token.reshape(len(index), -1)[:, 0], rest)


def token_gram(local: LocalRows, place: int, shapes: torch.Tensor) -> torch.Tensor:
    """An ellipsoid of all entries of one token, for ellipsoids of the checkpoint's tokens."""
    shape = shapes[int(local.token[place])]
    return with_box(product(local.blocks[place][None], shape[None])[0], local.rest[place])
