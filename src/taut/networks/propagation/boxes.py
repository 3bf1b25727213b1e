"""How far every entry of a node can move, and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.checkpoint import Checkpoint
from taut.networks.propagation.growth import grown
from taut.networks.propagation.input_set import InputRows
from taut.networks.propagation.node import Node
from taut.networks.propagation.reached import TINY, Reached, Trail
from taut.networks.propagation.scatter import Scatter
from taut.networks.propagation.value_factors import Entries

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine

LARGEST_TABLE = 1.5e8  # numbers in the linear functions that are kept of a node


def find_box(engine: Engine, node: Node, *, factors: bool) -> None:
    """Enter the box of a node, and with ``factors`` its entries as functions of the input."""
    index = node.needed.nonzero()[:, 0]
    begin, rows, more = engine.entry_rows(node, index)
    keep = factors and len(rows) * engine.entries < LARGEST_TABLE
    found = engine.carry([(begin, rows)], keep=keep, trail=keep and engine.ellipsoids)
    found.rounding += more
    low, high = found.shift - found.half, found.shift + found.half
    if node.signed and not factors:
        plus = engine.carry([(begin, rows)], lower=True)
        minus = engine.carry([(begin, rows.but(-rows.values))], lower=True)
        low = torch.maximum(low, plus.shift - plus.half - more)
        high = torch.minimum(high, minus.half - minus.shift + more)
    at, rest, scatter = (low + high) / 2, found.half, None
    if found.linear is not None:
        at, rest = found.shift, (found.error + found.rounding) * (1 + 1e-12) + TINY
    if found.trail is not None and not node.frozen:
        scatter = _scatter(engine, node, found, found.trail)
        if scatter is not None:
            at = found.trail.drift
            off = (found.shift - at).abs() * (1 + 1e-12)
            rest = torch.minimum(rest + off, scatter.largest().flatten())
            far = (found.reach + rest) * (1 + 1e-12) + TINY
            low, high = torch.maximum(low, at - far), torch.minimum(high, at + far)
    if node.frozen:  # the linear function is 0 there, and not where the centre stays
        rest = rest + at.abs() * (1 + 1e-12)
        at = torch.zeros_like(at)
    half = torch.maximum(high - at, at - low) * (1 + 1e-12)
    middle, radius, errors = (torch.zeros_like(node.centre) for _ in range(3))
    shape = (len(index), node.width)
    middle[index], radius[index] = at.reshape(shape), half.reshape(shape)
    node.recentre(middle, radius)
    if factors:
        errors[index] = rest.reshape(shape)
        errors[index] += 16 * EPS * node.centre.abs()[index]
        linear = found.linear or InputRows(low.new_zeros(len(low), 0), None)
        _keep(engine, node, linear, errors, scatter)


def _scatter(engine: Engine, node: Node, found: Reached, trail: Trail) -> Scatter | None:
    """Errors of a node as an ellipsoid, if that can be had."""
    rounding = (found.rounding * (1 + 1e-9) + TINY).reshape(-1, node.width)
    rounding = rounding + 16 * EPS * node.centre.abs()[node.needed]
    before = None
    if trail.stop:  # at the input there are no errors
        assert engine.checkpoint is not None
        before = engine.checkpoint[1].scatter
    parts = list(trail.parts.values())
    return grown(before, trail.ends, parts, rounding, together=engine.whole(node))


def _keep(
    engine: Engine, node: Node, linear: InputRows, errors: torch.Tensor, scatter: Scatter | None
) -> None:
    """Enter the entries; if rows may end there, the node is the last checkpoint from now on."""
    by_token = None
    if scatter is not None:
        by_token = errors.new_zeros(*errors.shape, node.width)
        by_token[node.needed] = scatter.by_token()
    engine.kept[node.index] = Entries(linear, errors, node.needed, by_token)
    if scatter is not None and engine.whole(node):
        assert node.box is not None
        values = linear.values.reshape(*errors.shape, -1)
        engine.checkpoint = node.index, Checkpoint(values, scatter, errors, node.box)
