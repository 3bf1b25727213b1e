"""Optimised slopes: which line below a hinge gives the best bound of a row, by gradient steps.

Any slope between those of both sides is sound, so that the search needs no proof: the bound is
computed anew for the slopes that were found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from taut.networks.propagation.ascent import Leaf, ascend
from taut.networks.propagation.choices import HingeChoices
from taut.networks.propagation.engine import Engine, Starts
from taut.networks.propagation.node import UnboundedError
from taut.networks.propagation.pointwise_nodes import ActivationNode
from taut.networks.propagation.rows import Rows

MOST_ROWS = 64  # that are optimised
TOGETHER = 16  # of them at a time
RATE = 0.25

Slopes = dict[int, torch.Tensor]


def lower_bounds(
    engine: Engine, rows: Rows, steps: int, slopes: Slopes | None = None
) -> torch.Tensor:
    """Lower bounds of rows on the last node, as deviations from their value at its centre.

    Parameters
    ----------
    steps
        How often the slopes are moved; 0 leaves them as they are.
    slopes
        Where to begin, by the index of the node, (rows, entries); the slopes that were found are
        left in it.
    """
    best = below(engine, [(engine.nodes[-1], rows)])
    # tensors that were made in inference mode have no gradients
    if steps < 1 or len(rows) > MOST_ROWS or torch.is_inference_mode_enabled():
        return best
    known: Slopes = {} if slopes is None else slopes
    parts = []
    # an engine may carry more than so many rows one part after the other, but not their choices
    for index in torch.arange(len(rows)).split(TOGETHER):  # type: ignore[no-untyped-call]
        own = {node: each[index] for node, each in known.items() if len(each) == len(rows)}
        part = Rows(rows.values[index], None if rows.token is None else rows.token[index])
        best[index] = torch.maximum(best[index], _optimised(engine, part, steps, own))
        parts.append(own)
    known.update({node: torch.cat([part[node] for part in parts]) for node in parts[0]})
    return best


def _optimised(engine: Engine, rows: Rows, steps: int, slopes: Slopes) -> torch.Tensor:
    """The best bounds that were found on the way; −inf if there is none."""
    start = [(engine.nodes[-1], rows)]
    with contextlib.suppress(UnboundedError), chosen_slopes(engine, len(rows), slopes) as leaves:
        return ascend(lambda: below(engine, start), leaves, steps)
    return rows.values.new_full((len(rows),), -torch.inf)


def below(engine: Engine, start: Starts) -> torch.Tensor:
    """Lower bound of each row, as a deviation."""
    found = engine.carry(start, lower=True)
    return found.shift - found.half


@contextlib.contextmanager
def chosen_slopes(engine: Engine, rows: int, slopes: Slopes | None = None) -> Iterator[list[Leaf]]:
    """Slopes of their own for so many rows at all hinges that are bent, as long as it lasts."""
    known = {} if slopes is None else slopes
    leaves = []
    hinges = [node for node in engine.nodes if isinstance(node, ActivationNode) and len(node.bent)]
    for node in hinges:
        assert node.lines is not None
        assert node.lines.below is not None
        given = known.get(node.index)
        if given is None or len(given) != rows:
            given = node.lines.below.flatten()[None].expand(rows, -1)
        node.choices = HingeChoices(node.bent, given[:, node.bent].clone())
        leaves.append(Leaf(node.choices, "slopes", node.limits, RATE))
    try:
        yield leaves
    finally:
        for node in hinges:
            assert node.choices is not None
            assert node.lines is not None
            assert node.lines.below is not None
            full = node.lines.below.flatten()[None].repeat(rows, 1)
            full[:, node.bent] = node.choices.slopes.detach()
            known[node.index] = full
            node.choices = None
