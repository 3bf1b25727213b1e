"""The bound of a clause on the whole set, by all choices at once; branches start from it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ascent import Leaf, ascend
from taut.networks.propagation.attention_below import first_choices, narrow, tangent_limits
from taut.networks.propagation.attention_node import AttentionNode
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.slopes import chosen_slopes
from taut.networks.propagation.value_reference import ValueReference
from taut.networks.verification.condensed import Condensed, Functions

FIRST, TOGETHER = 12, 24  # gradient steps for slopes, and for the choices of attention as well
TANGENT, CORNER, MIXTURE = 0.02, 0.1, 0.3  # rates


class Root(NamedTuple):
    """A clause on the whole set.

    Attributes
    ----------
    lower
        Its lower bound.
    function
        The mixture of its functions that was bounded, less what it must exceed.
    slopes
        Those below the undecided ReLUs, (1, ReLUs).
    """

    lower: float
    function: Functions
    slopes: torch.Tensor


class _Mixture:
    """Logarithms of the share of each function, (1, functions)."""

    def __init__(self, like: torch.Tensor) -> None:
        self.logs = torch.zeros_like(like)[None]

    @property
    def share(self) -> torch.Tensor:
        return torch.softmax(self.logs, dim=1)


def bound_root(relus: Condensed, rows: torch.Tensor, values: torch.Tensor) -> Root:
    """The best mixture of functions (functions, tokens, width) with these values at the centre.

    A mixture that is above 0 everywhere proves that at every input some function is.
    """
    engine = relus.engine
    mixture = _Mixture(values)

    def bound() -> torch.Tensor:
        row = torch.einsum("sf,ftw->stw", mixture.share, rows)
        found = engine.carry([(engine.nodes[-1], Rows(row))], lower=True)
        return mixture.share @ values + found.shift - found.half

    attention = [n for n in engine.nodes if isinstance(n, AttentionNode) and narrow(n)]
    try:
        with chosen_slopes(engine, 1) as leaves:
            if len(rows) > 1:
                leaves.append(Leaf(mixture, "logs", (-30.0, 30.0), MIXTURE))
            found = ascend(bound, leaves, FIRST, goal=0.0)
            if float(found) <= 0 and attention:
                with torch.no_grad():
                    bound()
                leaves += [leaf for node in attention for leaf in _attention_leaves(node)]
                found = torch.maximum(found, ascend(bound, leaves, TOGETHER, goal=0.0))
            with torch.no_grad():
                bound()
            none = values.new_zeros(1, 0)
            choices = [node.choices for node in relus.hinges if node.choices is not None]
            slopes = torch.cat([none, *(each.slopes for each in choices)], dim=1)
            onward = [none if each.onward is None else each.onward for each in choices]
            with torch.no_grad():
                share = mixture.share
                row = torch.einsum("sf,ftw->stw", share, rows)
                of = relus.function(row, torch.cat([none, *onward], dim=1))
                of.shift = of.shift + share @ values
                of.error = of.error + (share @ values.abs()) * (16 * len(values) * EPS)
    finally:
        for node in attention:
            node.choices = node.reference = None
    return Root(float(found), of, slopes.detach())


def _attention_leaves(node: AttentionNode) -> list[Leaf]:
    """The choices of attention, near the row that came last."""
    assert node.change is not None
    assert node.asked is not None
    node.reference = ValueReference(node.change, node.asked)
    node.choices = first_choices(node)
    return [
        Leaf(node.choices, "tangents", tangent_limits(node), TANGENT),
        Leaf(node.choices, "corners", (-1.0, 1.0), CORNER),
    ]
