"""Which error every operation adds to its linear part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut.networks.propagation.activation_source import activation_source
from taut.networks.propagation.attention_node import AttentionNode
from taut.networks.propagation.attention_source import attention_source
from taut.networks.propagation.constant_node import ConstantNode
from taut.networks.propagation.ellipsoid import boxed
from taut.networks.propagation.linear_nodes import LinearNode
from taut.networks.propagation.node import Node
from taut.networks.propagation.norm_nodes import NormNode
from taut.networks.propagation.norm_source import norm_source
from taut.networks.propagation.pointwise_nodes import ActivationNode, ProductNode
from taut.networks.propagation.source import Source

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class ErrorSources:
    """The error of every operation, found when it is first asked for.

    Attributes
    ----------
    readers
        The linear map behind whose output the error of a wide activation is given, by index.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._found: dict[int, Source | None] = {}
        self.readers: dict[int, LinearNode] = {}
        read_by: dict[int, list[Node]] = {}
        for node in engine.nodes:
            for parent in node.parents:
                read_by.setdefault(parent.index, []).append(node)
        for node in engine.nodes:
            match read_by.get(node.index):
                case [LinearNode() as reader] if (
                    isinstance(node, ActivationNode) and reader.width < node.width
                ):
                    self.readers[node.index] = reader

    def of(self, node: Node) -> Source | None:
        """What a node adds; None if it is linear."""
        if node.index not in self._found:
            self._found[node.index] = self._source(node)
        return self._found[node.index]

    def _source(self, node: Node) -> Source | None:
        match node:
            case ActivationNode():
                return activation_source(node, self.readers.get(node.index), self.engine)
            case NormNode():
                return norm_source(node, self.engine)
            case AttentionNode():
                return attention_source(node, self.engine)
            case ProductNode():
                return Source(torch.zeros_like(node.centre), axes=boxed(node.both))
            case ConstantNode():
                ball = torch.full_like(node.centre, node.radius_of_all**2 * (1 + 1e-9))
                return Source(torch.zeros_like(node.centre), axes=ball)
        return None
