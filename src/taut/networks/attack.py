"""Projected gradient steps against a classifier, to check a certified radius."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from taut._base.rounding import Numbers
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.question import Question

TRIED = 12  # radii on the way to the smallest that changes a class


class AttackedBall(NamedTuple):
    """What is attacked: the inputs of a question, their classes, and the shape of the ball."""

    question: Question
    classes: Numbers
    norm: float
    scale: torch.Tensor  # size of every entry, (inputs, tokens, width)
    seed: int


@without_autocast()
def smallest_margin(ball: AttackedBall, radius: Numbers, steps: int, restarts: int) -> Numbers:
    """Smallest lead of the given classes that was found within the radius of each input."""
    (centre,) = ball.question.points(1)
    label = torch.as_tensor(np.asarray(ball.classes), device=centre.device)
    flat = [1] * (centre.ndim - 1)
    scale = ball.scale.reshape(centre.shape).to(centre)
    # 1 − 1e-6: centre + step must not lie outside, even rounded to float32.
    limit = torch.as_tensor(radius).to(centre).reshape(-1, *flat) * (1 - 1e-6)
    source = torch.Generator().manual_seed(ball.seed)
    worst = torch.full((len(centre),), float("inf"), dtype=torch.float64)
    for restart in range(restarts):
        noise = torch.randn(centre.shape, generator=source, dtype=torch.float64).to(centre)
        step = onto(noise, ball.norm) * limit if restart else torch.zeros_like(centre)
        for turn in range(steps + 1):
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                moved = step.detach().requires_grad_(True)
                lead = _lead(ball.question.call(centre + moved * scale), label)
                (slope,) = torch.autograd.grad(lead.sum(), moved)
            worst = torch.minimum(worst, lead.detach().double().cpu())
            step = next_step(step, slope, ball.norm, limit, turn)
    return np.asarray(worst.numpy())


def radius_of_change(
    ball: AttackedBall, known: Numbers, begin: Numbers, steps: int, restarts: int
) -> Numbers:
    """Smallest radius at which an attack changes the class; infinite where none was found.

    ``known`` is certified, so that the search begins there; ``begin`` is where to try first.
    """
    low, high = known.copy(), np.full(len(known), np.inf)
    radius = np.where(begin > 0, begin, 1e-3)
    for _ in range(TRIED):
        changed = smallest_margin(ball, radius, steps, restarts) <= 0
        high = np.where(changed, np.minimum(radius, high), high)
        low = np.where(changed, low, np.maximum(radius, low))
        between = np.where(np.isinf(high), 0.0, (low + np.where(np.isinf(high), 0.0, high)) / 2)
        radius = np.where(np.isinf(high), 2 * low, between)
    return high


def next_step(
    step: torch.Tensor, slope: torch.Tensor, norm: float, limit: torch.Tensor, turn: int
) -> torch.Tensor:
    """A step towards a smaller margin that stays inside the ball."""
    if norm == 2:
        step = step - onto(slope, 2) * limit / 4
        inside: torch.Tensor = step * (limit / _size(step, 2).clamp(min=1e-30)).clamp(max=1.0)
        return inside
    if norm == 1:  # towards the corner that lowers the margin most, half of it at first
        flat = slope.flatten(1)
        best = flat.abs().argmax(dim=1, keepdim=True)
        corner = torch.zeros_like(flat).scatter(1, best, -flat.gather(1, best).sign())
        share = 2 / (turn + 3)
        return (1 - share) * step + share * limit * corner.reshape(step.shape)
    return (step - slope.sign() * limit / 4).maximum(-limit).minimum(limit)


def _size(step: torch.Tensor, norm: float) -> Any:
    flat = step.flatten(1)
    if norm == 2:
        found = flat.norm(dim=1)
    else:
        found = flat.abs().sum(dim=1) if norm == 1 else flat.abs().amax(dim=1)
    return found.reshape(-1, *[1] * (step.ndim - 1))


def onto(step: torch.Tensor, norm: float) -> torch.Tensor:
    """The direction, scaled to length 1."""
    found: torch.Tensor = step / _size(step, norm).clamp(min=1e-30)
    return found


def _lead(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """How far the class is ahead of the best other one."""
    logits = logits.reshape(len(label), -1)
    own = logits.gather(1, label[:, None])[:, 0]
    others = logits.scatter(1, label[:, None], -torch.inf)
    return own - others.amax(dim=1)
