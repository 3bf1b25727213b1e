"""Compare a rule with its module: at the same inputs both must give the same output."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from taut.networks.execution import runs_in
from taut.networks.interpreter import Interpreter
from taut.networks.question import Question
from taut.networks.region import Region

LONG = 256  # tokens; longer inputs are compared by a short random one only


def check_rule(question: Question, y: Region, device: torch.device) -> None:
    """Refuse a rule that does not describe its module; ``y`` is what the rule made of the domain.

    Outputs are compared at the given inputs, unless these are long, and at a short random one. The
    module runs in its own precision (float32, if that is half), so half of the digits must agree.
    """
    dtype, _ = runs_in(question.module, question.domain)
    if dtype in (torch.float16, torch.bfloat16):
        question = replace(question, module=copy.deepcopy(question.module).float())
    points = question.points(1)
    simple = not question.masks and question.context is None
    if y.centre is not None and not (simple and points[0][..., 0].numel() > LONG):
        compare_outputs(question, points, y.centre)
    if y.centre is None or simple:
        short = question if y.centre is None else question.short()
        points = short.points(1)
        here = short.at(*(point.to(torch.float64) for point in points))
        found = here.answer(Interpreter(question.norm, 0.0, device, dry=True)).centre
        assert found is not None
        compare_outputs(short, points, found)


def compare_outputs(question: Question, points: list[torch.Tensor], centre: torch.Tensor) -> None:
    """Refuse a rule whose output at these points is not that of the module."""
    name = type(question.module).__name__
    executed = question.call(*points).to(centre)
    if executed.numel() != centre.numel():
        raise RuntimeError(
            f"the rule for {name} gives an output of shape {tuple(centre.shape)}, the module "
            f"{tuple(executed.shape)}: the rule does not fit"
        )
    if not bool(torch.isfinite(executed).all()):
        raise ValueError(f"the output of {name} overflows or is not a number at these inputs")
    many = len(centre)
    apart = (executed.reshape(many, -1) - centre.reshape(many, -1)).norm(dim=1)
    size = centre.reshape(many, -1).norm(dim=1)
    allowed = 4 * max(torch.finfo(points[0].dtype).eps ** 0.5, 1e-5)
    worst = float((apart / (size + 1e-30)).max())
    if not worst <= allowed:
        raise RuntimeError(
            f"the rule for {name} does not describe this module: their outputs differ by "
            f"{worst:.2g} of their size. Does a subclass or a switch change what it does, or are "
            "the numbers beyond its precision?"
        )
