"""Which tokens of a recorded network its output depends on."""

from __future__ import annotations

from taut.networks.propagation.node import Node


def find_needed(nodes: list[Node]) -> None:
    """Mark the tokens of every node that the last one depends on."""
    nodes[-1].needed[:] = True
    for node in reversed(nodes):
        for parent, needed in zip(node.parents, node.needs(), strict=True):
            parent.needed |= needed
