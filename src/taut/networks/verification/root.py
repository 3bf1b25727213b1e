"""The bound of a clause on the whole set, by all choices at once; branches start from it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ascent import Leaf, ascend
from taut.networks.propagation.attention_below import first_choices, narrow, tangent_limits
from taut.networks.propagation.attention_node import AttentionNode
from taut.networks.propagation.engine import Engine
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.slopes import chosen_slopes
from taut.networks.propagation.value_reference import ValueReference
from taut.networks.verification.condensed import Condensed, Functions

STEPS = 30  # gradient steps
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
    """A sum of the functions of a clause, less what they must exceed, with shares ≥ 0.

    Attributes
    ----------
    logs
        Logarithms of the shares, (1, functions).
    """

    def __init__(self, engine: Engine, rows: torch.Tensor, above: torch.Tensor) -> None:
        self.engine, self.rows, self.above = engine, rows, above
        self.logs = torch.zeros_like(above)[None]

    @property
    def row(self) -> torch.Tensor:
        """Its coefficients on the output, (1, tokens, width)."""
        return torch.einsum("sf,ftw->stw", torch.softmax(self.logs, dim=1), self.rows)

    def value(self) -> torch.Tensor:
        """Its value at the centre, rounded down."""
        share = torch.softmax(self.logs, dim=1)
        terms = torch.cat(
            ((self.row * self.engine.nodes[-1].centre).flatten(1), -share * self.above), dim=1
        )
        return terms.sum(dim=1) - terms.abs().sum(dim=1) * (8 * EPS * terms.shape[1])

    def bound(self) -> torch.Tensor:
        """Lower bound, for the choices as they are."""
        found = self.engine.carry([(self.engine.nodes[-1], Rows(self.row))], lower=True)
        return self.value() + found.shift - found.half


def bound_root(relus: Condensed, rows: torch.Tensor, above: torch.Tensor) -> Root:
    """The best mixture of functions (functions, tokens, width) of the output.

    A mixture that is above 0 everywhere proves that at every input some function is.
    """
    engine = relus.engine
    mixture = _Mixture(engine, rows, above)
    attention = []
    if engine.inputs.norm == float("inf"):  # in l1 and l2 keys share the radius, which is better
        attention = [n for n in engine.nodes if isinstance(n, AttentionNode) and narrow(n)]
    try:
        with torch.no_grad(), chosen_slopes(engine, 1) as leaves:
            if len(rows) > 1:
                leaves.append(Leaf(mixture, "logs", (-30.0, 30.0), MIXTURE))
            mixture.bound()  # shows the rows that come to attention
            leaves += [leaf for node in attention for leaf in _attention_leaves(node)]
            found = ascend(mixture.bound, leaves, STEPS, goal=0.0)
            mixture.bound()
            none = above.new_zeros(1, 0)
            choices = [node.choices for node in relus.hinges if node.choices is not None]
            slopes = torch.cat([none, *(each.slopes for each in choices)], dim=1)
            onward = [none if each.onward is None else each.onward for each in choices]
            of = relus.function(mixture.row, torch.cat([none, *onward], dim=1))
            of.shift = of.shift + mixture.value()
    finally:
        for node in attention:
            node.choices = node.reference = None
    return Root(float(found), of, slopes.detach())


def _attention_leaves(node: AttentionNode) -> list[Leaf]:
    """The choices of attention, near the row that came last."""
    if node.change is None or node.asked is None:
        return []
    node.reference = ValueReference(node.change, node.asked)
    node.choices = first_choices(node)
    return [
        Leaf(node.choices, "tangents", tangent_limits(node), TANGENT),
        Leaf(node.choices, "corners", (-1.0, 1.0), CORNER),
    ]
