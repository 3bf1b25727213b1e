"""MovedNodes: steps of every node of a network, in groups, and the ellipsoids that they span.

A node moves by Σ X·z over its groups, with |z|₂ ≤ 1 for each group (theorem ellipsoid-algebra). The
first group, 0, is the input's own; every other one is an ellipsoid that an operation has added.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from taut.networks.ellipsoids.ellipsoid import factor, summed, widened
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.node import Node, UnboundedError

LARGEST = 5000  # entries of a node whose matrix is still computed

Steps = dict[int, torch.Tensor]  # for each group (size of z, tokens, width)
Push = Callable[..., torch.Tensor]


class MovedNodes:
    """What is known of the nodes so far.

    Attributes
    ----------
    steps
        The groups of each node.
    rounded
        How far rounding moves each token besides, in l2, for each node.
    """

    def __init__(self, nodes: list[Node], inputs: InputSet) -> None:
        self.nodes, self.inputs = nodes, inputs
        self.steps: list[Steps] = []
        self.rounded: list[torch.Tensor] = []
        self._groups = 0

    def sizes(self, node: Node, steps: Steps) -> torch.Tensor:
        """How far each token of a node can move in l2."""
        found = torch.zeros_like(node.sizes)
        for each in steps.values():
            found = found + each.square().sum(dim=(0, 2)).sqrt()
        return found * (self.inputs.far * (1 + 1e-9))

    def pushed(self, node: Node, push: Push) -> Steps:
        """Steps of all groups of the parents, 0 where a parent lacks a group."""
        groups = sorted({group for x in node.parents for group in self.steps[x.index]})
        return {group: push(*self._group(group, node.parents)) for group in groups}

    def _group(self, group: int, nodes: tuple[Node, ...]) -> list[torch.Tensor]:
        """The steps of one group, for each of the nodes."""
        given = [self.steps[node.index].get(group) for node in nodes]
        count = next(len(each) for each in given if each is not None)
        return [
            node.centre.new_zeros(count, *node.centre.shape) if one is None else one
            for node, one in zip(nodes, given, strict=True)
        ]

    def group_of(self, node: Node, matrix: torch.Tensor, index: torch.Tensor) -> Steps:
        """A new group for an ellipsoid of the tokens of an index."""
        steps = factor(matrix).mT
        found = steps.new_zeros(len(steps), *node.centre.shape)
        found[:, index] = steps.reshape(len(steps), len(index), node.width)
        self._groups += 1
        return {self._groups: found}

    def join(self, node: Node) -> None:
        """Make one group of all ellipsoids and of rounding, if they have more steps than needed.

        Only for the last node so far, and if nothing before it is read any more.
        """
        steps, index = self.steps[-1], node.needed.nonzero()[:, 0]
        others = [each for group, each in steps.items() if group > 0]
        entries = len(index) * node.width
        if sum(len(each) for each in others) <= 1.5 * entries or entries > LARGEST:
            return
        flat = [each[:, index].flatten(1) for each in others]
        parts = [widened(each.mT @ each, len(each)) for each in flat]
        rounded = self.rounded[-1][index]
        shared = (rounded * rounded.sum() * (1 + 1e-9)).repeat_interleave(node.width)
        kept = {0: steps[0]} if 0 in steps else {}
        self.steps[-1] = kept | self.group_of(node, summed(*parts, torch.diag(shared)), index)
        self.rounded[-1] = torch.zeros_like(node.sizes)
        node.sizes = torch.minimum(node.sizes, self.sizes(node, self.steps[-1]))

    def together(self, nodes: tuple[Node, ...], *, linear: bool) -> list[torch.Tensor]:
        """Steps that all these nodes share, (size of z, tokens, width) for each, with one |z|₂ ≤ 1.

        Those of their linear change, or of everything else. If all are linear maps of one node
        that has fewer entries than steps, its ellipsoid gives fewer of them.
        """
        roots = {_root(node).index for node in nodes}
        root = self.nodes[min(roots)]
        index = root.needed.nonzero()[:, 0]
        entries = len(index) * root.width
        count = sum(map(len, self._of(root, linear=linear).values()))
        if len(roots) == 1 and entries < count and entries <= LARGEST:
            (all_steps,) = self._joined((root,), linear=linear)
            (steps,) = self.group_of(root, _square(all_steps[:, index]), index).values()
            return [_along(root, node, steps) for node in nodes]
        return self._joined(nodes, linear=linear)

    def _of(self, node: Node, *, linear: bool) -> Steps:
        """The groups of a node that are its linear change, or all others."""
        steps = self.steps[node.index]
        return {group: each for group, each in steps.items() if (group == 0) == linear}

    def _joined(self, nodes: tuple[Node, ...], *, linear: bool) -> list[torch.Tensor]:
        """All groups as one: each divided by the root of its share of the whole."""
        sizes: dict[int, float] = {}
        for node in nodes:
            for group, each in self._of(node, linear=linear).items():
                size = float(each.square().sum()) ** 0.5
                sizes[group] = sizes.get(group, 0.0) + size
        whole = sum(sizes.values())
        found = [[node.centre.new_zeros(0, *node.centre.shape)] for node in nodes]
        for group, size in sizes.items():
            if size > 0:
                far = self.inputs.far if group == 0 else 1.0
                times = far * (whole / size) ** 0.5 * (1 + 1e-12)
                for parts, each in zip(found, self._group(group, nodes), strict=True):
                    parts.append(each * times)
        return [torch.cat(parts) for parts in found]

    def matrices(self, node: Node, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Ellipsoids of how far tokens of an index move: their linear change, and the rest."""
        if len(index) * node.width > LARGEST:
            raise UnboundedError
        return self._matrix(node, index, linear=True), self._matrix(node, index, linear=False)

    def _matrix(self, node: Node, index: torch.Tensor, *, linear: bool) -> torch.Tensor:
        root = _root(node)
        (steps,) = self._joined((root,), linear=linear)
        if root is node or root.centre.numel() > LARGEST:
            return _square(_along(root, node, steps)[:, index])
        found = _square(steps)
        size = found.diagonal().clamp(min=0.0).reshape(root.centre.shape).sum(dim=-1).sqrt()
        for _ in range(2):  # rows, then columns
            moved = _along(root, node, found.reshape(-1, *root.centre.shape))
            found = moved[:, index].flatten(1).mT
        return widened(found, 8 * (root.width + root.tokens), _grown(root, node, size).square())


def _square(steps: torch.Tensor) -> torch.Tensor:
    flat = steps.flatten(1)
    return widened(flat.mT @ flat, len(flat))


def _root(node: Node) -> Node:
    """The last node before it that is not a linear map of one other."""
    while len(node.parents) == 1 and node.kind == "linear":
        (node,) = node.parents
    return node


def _along(root: Node, node: Node, steps: torch.Tensor) -> torch.Tensor:
    """Steps of a root as steps of a node that is a linear map of it."""
    return steps if node is root else node.push(_along(root, node.parents[0], steps))


def _grown(root: Node, node: Node, sizes: torch.Tensor) -> torch.Tensor:
    """How long tokens of a node can be that is a linear map of a root."""
    return sizes if node is root else node.grown(_grown(root, node.parents[0], sizes))
