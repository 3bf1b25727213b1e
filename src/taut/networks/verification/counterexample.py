"""Search for an input of the set that violates a property, by projected gradient steps."""

from __future__ import annotations

import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from taut._base.domain import At
from taut.networks.attack import next_step, onto
from taut.networks.propagation.input_set import InputSet
from taut.networks.question import Question
from taut.networks.verification.property import Property

STEPS = 40
RESTARTS = 3
CLAUSES = 16  # that are attacked at most


def find_counterexample(
    question: Question, wanted: Property, inputs: InputSet, seed: int, deadline: float
) -> torch.Tensor | None:
    """An input, (1, ...), of the type that the module takes; None if none was found.

    The clauses that are nearest to being violated are attacked one by one, from the given input
    and from random points. What counts is the output of the module as executed, at an input that
    lies in the set.
    """
    (centre,) = question.points(1)
    scale = inputs.scale.reshape(centre.shape).to(centre)
    source = torch.Generator().manual_seed(seed)
    nearest = wanted.ahead(question.call(centre))[0].argsort()[:CLAUSES]
    many = len(nearest)
    # 1 − 1e-6: centre + step should not lie outside, even rounded to float32
    limit = torch.full((many, *[1] * (centre.ndim - 1)), 1 - 1e-6).to(centre)
    for restart in range(RESTARTS):
        noise = torch.randn((many, *centre.shape[1:]), generator=source, dtype=torch.float64)
        start = onto(noise.to(centre), inputs.norm) * limit
        step = start if restart else torch.zeros_like(start)
        for turn in range(STEPS):
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                moved = step.detach().requires_grad_(True)
                points = centre + moved * scale
                outputs = _outputs(question, points)
                worst = wanted.ahead(outputs).gather(1, nearest[:, None])
                (slope,) = torch.autograd.grad(worst.sum(), moved, allow_unused=True)
            found = _violating(question, wanted, inputs, points.detach(), outputs.detach())
            if found is not None:
                return found
            if time.monotonic() > deadline:
                return None
            if slope is None:  # the output depends on nothing
                return None
            step = next_step(step, slope, inputs.norm, limit, turn)
    return None


def _outputs(question: Question, points: torch.Tensor) -> torch.Tensor:
    """Outputs of several points; one at a time if a mask was made for one input."""
    if question.masks:
        return torch.cat([question.call(point[None]) for point in points])
    return question.call(points)


def violation(
    question: Question, wanted: Property, inputs: InputSet, points: torch.Tensor
) -> torch.Tensor | None:
    """One of these points, (1, ...), if it lies in the set and violates the property."""
    return _violating(question, wanted, inputs, points, _outputs(question, points))


def _violating(
    question: Question, wanted: Property, inputs: InputSet, points: torch.Tensor,
    outputs: torch.Tensor,
) -> torch.Tensor | None:  # fmt: skip
    """A point in the set whose output violates some clause."""
    bad = wanted.least(outputs) <= 0
    if not bool(bad.any()):
        return None
    assert isinstance(question.domain, At)
    far = points.double() - question.domain.inputs.to(points.device).double()
    inside = inputs.holds(far.reshape(len(points), *inputs.scale.shape).to(inputs.scale))
    for index in (bad & inside.to(bad.device)).nonzero()[:, 0].tolist():
        point = points[index : index + 1]
        # by itself: a batch may be computed in another order
        if bool(wanted.least(question.call(point))[0] <= 0):
            return point
    return None
