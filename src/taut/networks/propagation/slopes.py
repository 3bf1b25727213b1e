"""Optimised slopes: which line below a hinge gives the best bound of a row, by gradient steps.

Any slope between those of both sides is sound, so that the search needs no proof: the bound is
computed anew for the slopes that were found.
"""

from __future__ import annotations

import contextlib

import torch

from taut.networks.propagation.engine import Engine
from taut.networks.propagation.node import UnboundedError
from taut.networks.propagation.pointwise_nodes import ActivationNode
from taut.networks.propagation.rows import Rows

MOST_ROWS = 64  # that are optimised at a time
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
        Where to begin, by the index of the node; the slopes that were found are left in it.
    """
    start = [(engine.nodes[-1], rows)]
    found = engine.carry(start, lower=True)
    best = found.shift - found.half
    hinges = [node for node in engine.nodes if isinstance(node, ActivationNode) and node.is_bent]
    # tensors that were made in inference mode have no gradients
    if steps < 1 or not hinges or len(rows) > MOST_ROWS or torch.is_inference_mode_enabled():
        return best
    known = {} if slopes is None else slopes
    for node in hinges:
        node.chosen = known.get(node.index)
        node.choosing = True
    with contextlib.suppress(UnboundedError):
        best = _optimised(engine, rows, hinges, steps, best)
    for node in hinges:
        if node.chosen is not None:
            known[node.index] = node.chosen.detach()
        node.chosen, node.choosing = None, False
    return best


def _optimised(
    engine: Engine, rows: Rows, hinges: list[ActivationNode], steps: int, best: torch.Tensor
) -> torch.Tensor:
    """The best bounds on the way; Adam, by hand so that slopes stay between their limits."""
    moments: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for turn in range(steps + 1):
        with torch.enable_grad():
            found = engine.carry([(engine.nodes[-1], rows)], lower=True)
            value = found.shift - found.half
            best = torch.maximum(best, value.detach())
            if turn == steps:
                break
            moving = [node for node in hinges if node.chosen is not None]
            leaves = [node.chosen for node in moving if node.chosen is not None]
            grads = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
        for node, leaf, grad in zip(moving, leaves, grads, strict=True):
            slope = torch.zeros_like(leaf) if grad is None else torch.nan_to_num(grad)
            first, second = moments.get(node.index, (torch.zeros_like(leaf),) * 2)
            first, second = 0.8 * first + 0.2 * slope, 0.95 * second + 0.05 * slope**2
            moments[node.index] = first, second
            bias = (1 - 0.8 ** (turn + 1), 1 - 0.95 ** (turn + 1))
            step = (first / bias[0]) / ((second / bias[1]).sqrt() + 1e-12)
            moved = leaf.detach() + RATE * 0.9**turn * step
            node.chosen = node.within(moved).requires_grad_(True)
    return best
