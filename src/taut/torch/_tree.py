"""Node: one module of a certificate, with the modules inside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from taut.torch._numbers import Numbers


@dataclass
class Node:
    """A module, its constant on the inputs that can reach it, and why.

    Attributes
    ----------
    name
        Path inside the module that contains it.
    kind
        Its class.
    constant
        Lipschitz constant from the input of this module to its output, one for each sample. With a
        context (cross-attention), tokens and context may move together.
    rule
        What the constant is made of.
    theorem
        Ids of :data:`taut.theorems.THEOREMS`.
    children
        The modules inside.
    """

    name: str
    kind: str
    rule: str = ""
    theorem: tuple[str, ...] = ()
    constant: Numbers = field(default_factory=lambda: np.ones(1))
    children: list[Node] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """The largest constant of the batch."""
        return float(self.constant.max())

    def walk(self, path: str = "", depth: int = 0, share: float = 1.0) -> Iterator[Line]:
        """All nodes from the top down, each with its share of the logarithm of the total.

        Constants along a chain multiply, so their logarithms add up; a module that shrinks counts
        with its absolute value.
        """
        yield Line(path, depth, share, self)
        weights = [abs(math.log(child.worst)) if _counts(child) else 0.0 for child in self.children]
        total = sum(weights)
        for child, weight in zip(self.children, weights, strict=True):
            inner = f"{path}.{child.name}" if path else child.name
            yield from child.walk(inner, depth + 1, share * weight / total if total else 0.0)

    def theorems(self) -> tuple[str, ...]:
        """Ids of all theorems that the constant rests on."""
        found = dict.fromkeys(self.theorem)
        for child in self.children:
            found |= dict.fromkeys(child.theorems())
        return tuple(found)


@dataclass(frozen=True)
class Line:
    """A node with its place in the tree."""

    path: str
    depth: int
    share: float
    node: Node


def _counts(node: Node) -> bool:
    return 0 < node.worst < math.inf
