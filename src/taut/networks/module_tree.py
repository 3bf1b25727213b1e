"""The modules of a certificate as a tree, each with its own constant and its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut._base.rounding import Numbers, number


@dataclass
class ModuleNode:
    """A module, its constant on the inputs that can reach it, and why.

    Attributes
    ----------
    name
        Path inside the module that contains it.
    kind
        Its class.
    constant
        Lipschitz constant from the input of this module to its output, one for each sample. With a
        context (cross-attention), tokens and context may both move.
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
    children: list[ModuleNode] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """The largest constant of the batch."""
        return float(self.constant.max())

    def walk(self, path: str = "", depth: int = 0, share: float = 1.0) -> Iterator[TreeLine]:
        """All nodes from the top down, each with its share of the logarithm of the total.

        Constants along a chain multiply, so their logarithms add up; a module that shrinks counts
        with its absolute value.
        """
        yield TreeLine(path, depth, share, self)
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
class TreeLine:
    """A node with its place in the tree."""

    path: str
    depth: int
    share: float
    node: ModuleNode


class TreeWriter:
    """The tree of a certificate while it grows: a rule writes into the module it bounds."""

    def __init__(self) -> None:
        self._open: list[ModuleNode] = [ModuleNode("", "")]

    @property
    def root(self) -> ModuleNode:
        """The finished tree."""
        return self._open[0].children[0]

    def path(self, name: str) -> str:
        """Where a module of this name stands, from the outermost module on."""
        return ".".join([*(node.name for node in self._open[2:]), name])

    @contextmanager
    def inside(self, node: ModuleNode) -> Iterator[None]:
        """Add a module; what is written meanwhile belongs to it."""
        self._open[-1].children.append(node)
        self._open.append(node)
        try:
            yield
        finally:
            self._open.pop()

    def explain(self, rule: str, theorem: tuple[str, ...]) -> None:
        """Say what the constant of the module in hand is made of."""
        self._open[-1].rule, self._open[-1].theorem = rule, theorem

    def leaf(
        self, name: str, kind: str, constant: Any, rule: str, theorem: tuple[str, ...]
    ) -> None:
        """Add a part of the module in hand that has a constant and no parts of its own."""
        values = np.atleast_1d(number(constant))
        self._open[-1].children.append(ModuleNode(name, kind, rule, theorem, values))


def _counts(node: ModuleNode) -> bool:
    return 0 < node.worst < math.inf
