"""How far functions of the output of a smooth network move near an input, by ellipsoids."""

from __future__ import annotations

import torch

from taut.networks.ellipsoids.forward import Forward, is_smooth
from taut.networks.propagation.engine import OutOfTimeError
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.node import UnboundedError
from taut.networks.propagation.record import record
from taut.networks.propagation.request import Request
from taut.networks.question import Question


def ellipsoid_radius(
    question: Question,
    request: Request,
    sample: int,
    rows: torch.Tensor,
    eps: float,
    deadline: float,
    device: torch.device,
) -> torch.Tensor | None:
    """How far rows move by what moves together, if the network is smooth and the set round."""
    tape = record(question, sample, device)
    if request.norm > 2 or not is_smooth(tape):
        return None
    inputs = InputSet(request.radius[sample], request.norm, request.scale[sample])
    try:
        return Forward(tape, inputs, eps, deadline).radius(rows)
    except (UnboundedError, OutOfTimeError):
        return None
