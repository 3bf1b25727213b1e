"""Projected gradient steps against a classifier, to check a certified radius."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from taut._base.rounding import Numbers
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.question import Question


@without_autocast()
def smallest_margin(
    question: Question, classes: Numbers, radius: Numbers, steps: int, restarts: int
) -> Numbers:
    """Smallest lead of the given classes that was found within the radius of each input."""
    (centre,) = question.points(1)
    label = torch.as_tensor(np.asarray(classes), device=centre.device)
    flat = [1] * (centre.ndim - 1)
    # 1 − 1e-6: centre + step must not lie outside, even rounded to float32.
    limit = torch.as_tensor(radius).to(centre).reshape(-1, *flat) * (1 - 1e-6)
    source = torch.Generator().manual_seed(question.seed)
    worst = torch.full((len(centre),), float("inf"), dtype=torch.float64)
    for restart in range(restarts):
        step = torch.randn(centre.shape, generator=source, dtype=torch.float64).to(centre)
        step = _onto(step, limit) if restart else torch.zeros_like(centre)
        for _ in range(steps + 1):
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                moved = step.detach().requires_grad_(True)
                lead = _lead(question.call(centre + moved), label)
                (slope,) = torch.autograd.grad(lead.sum(), moved)
            worst = torch.minimum(worst, lead.detach().double().cpu())
            size = slope.flatten(1).norm(dim=1).clamp(min=1e-30).reshape(-1, *flat)
            step = step - slope / size * limit / 4
            length = step.flatten(1).norm(dim=1).clamp(min=1e-30).reshape(-1, *flat)
            step = step * (limit / length).clamp(max=1.0)
    return np.asarray(worst.numpy())


def _onto(step: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """The direction, scaled to the length that is allowed."""
    size: torch.Tensor = step.flatten(1).norm(dim=1).clamp(min=1e-30)
    return step / size.reshape(limit.shape) * limit


def _lead(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """How far the class is ahead of the best other one."""
    logits = logits.reshape(len(label), -1)
    own = logits.gather(1, label[:, None])[:, 0]
    others = logits.scatter(1, label[:, None], -torch.inf)
    return own - others.amax(dim=1)
