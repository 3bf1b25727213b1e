"""Step: one operation of a network in an ONNX file, whose shapes are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """An operation that depends on the input of the network.

    Attributes
    ----------
    kind
        The operation, such as ``"MatMul"``.
    name
        The node, or where it has no name, its first output.
    inputs, outputs
        Names of values; an input that is left out is empty.
    attributes
        Plain numbers, strings and lists, and arrays of NumPy.
    opset
        Version of the operations, on which some of their meanings depend.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what stands for it."""
        return self.attributes.get(name, default)


class UnknownOperationError(TypeError):
    """An ONNX file has an operation that no rule knows, or one in an unknown form."""

    def __init__(self, step: Step, why: str = "") -> None:
        self.step = step
        words = why or "no rule says how it changes with its input"
        super().__init__(f"the operation {step.kind} at node {step.name!r} is not known: {words}")
