"""A question about a network as recorded operations, one input at a time."""

from __future__ import annotations

from typing import Any

import torch

from taut._base.domain import At
from taut.networks.propagation.linear_nodes import FixedNode, InputNode
from taut.networks.propagation.node import Node
from taut.networks.propagation.recorder import Recorder
from taut.networks.question import Question


def record(question: Question, sample: int, device: torch.device) -> list[Node]:
    """The operations of the network at one of the given inputs, the input first."""
    assert isinstance(question.domain, At)
    batch = len(question.domain.inputs)
    run = Recorder(device, batch, sample)
    x = run.keep(_input(question.domain.inputs[sample], device, InputNode))
    inputs: dict[str, Any] = dict(question.masks)
    if question.context is not None:
        assert isinstance(question.context, torch.Tensor)
        inputs["context"] = run.keep(_input(question.context[sample], device, FixedNode))
    last = run(question.module, x, type(question.module).__name__, **inputs)
    if last is not run.nodes[-1]:  # such as a module that does nothing
        last = run.shift(last, torch.zeros_like(last.centre))
    return run.nodes


def _input(x: torch.Tensor, device: torch.device, kind: type[InputNode]) -> InputNode:
    """A vector is one token, an image one token of all its pixels."""
    values = x.detach().to(device, torch.float64)
    values = values.clone() if values.is_inference() else values
    image = tuple(values.shape) if values.ndim > 2 else ()
    node = kind(values.reshape(1, -1) if values.ndim != 2 else values)
    node.image = image
    return node
