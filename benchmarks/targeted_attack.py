"""The smallest radius in l2 at which projected gradient steps change a class."""

from __future__ import annotations

import torch
from torch import nn

STEPS, STARTS, CLASSES = 40, 3, 3
HALVINGS = 9


def smallest_change(net: nn.Module, x: torch.Tensor, label: int, begin: float) -> float:
    """A radius at which an attack succeeds, and whose neighbourhood below does not.

    40 steps from three starts against each of the three nearest classes; the radius is doubled
    from ``begin`` on and then halved.
    """
    low, high = 0.0, begin
    while not changed(net, x, label, high):
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if changed(net, x, label, middle) else (middle, high)
    return high


def changed(net: nn.Module, x: torch.Tensor, label: int, radius: float) -> bool:
    """Whether the attack finds another class within the radius of an input."""
    with torch.no_grad():
        nearest = net(x[None])[0].argsort(descending=True).tolist()
    others = [each for each in nearest if each != label][:CLASSES]
    aims = torch.tensor(others).repeat_interleave(STARTS)[:, None]
    source = torch.Generator().manual_seed(0)
    move = torch.randn(len(aims), *x.shape, generator=source).to(x)
    move[::STARTS] = 0
    move = _onto(move) * (radius / 2)
    for step in range(STEPS + 1):
        move = move.detach().requires_grad_(True)
        logits = net(x + move)
        if bool((logits.argmax(dim=1) != label).any()):
            return True
        lead = logits[:, label] - logits.gather(1, aims)[:, 0]
        (slope,) = torch.autograd.grad(lead.sum(), move)
        far = radius if step == 0 else 2.5 * radius / STEPS
        move = move - far * _onto(slope)
        size = move.flatten(1).norm(dim=1)[:, None, None]
        move = move * (radius / size.clamp(min=1e-30)).clamp(max=1.0)
    return False


def _onto(step: torch.Tensor) -> torch.Tensor:
    """Each direction with length 1; 0 stays 0."""
    size: torch.Tensor = step.flatten(1).norm(dim=1)[:, None, None]
    return step / size.clamp(min=1e-30)
