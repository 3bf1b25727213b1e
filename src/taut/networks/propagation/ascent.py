"""Ascent: gradient steps that raise bounds from below by the choices that they are free to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

FIRST, SECOND = 0.8, 0.95  # how long Adam remembers slopes and their squares
COOLING = 0.93  # of the rate, after each step


class Leaf(NamedTuple):
    """A tensor, (rows, ...) or (1, ...) if all rows share it, that is moved to raise the bounds.

    Attributes
    ----------
    owner, name
        The choices that it belongs to, and what it is called there.
    limits
        Between which numbers it stays.
    rate
        How far it moves in the first step.
    """

    owner: Any
    name: str
    limits: tuple[float | torch.Tensor, float | torch.Tensor]
    rate: float

    @property
    def value(self) -> torch.Tensor:
        """What it is now."""
        found: torch.Tensor = getattr(self.owner, self.name)
        return found

    def set(self, value: torch.Tensor) -> None:
        """Enter other numbers."""
        setattr(self.owner, self.name, value)


def ascend(
    bounds: Callable[[], torch.Tensor], leaves: list[Leaf], steps: int, goal: float = float("inf")
) -> torch.Tensor:
    """The best bound of each row on the way; the leaves are left where these were found.

    Adam, by hand, so that numbers stay within their limits and each row keeps its own best. Stops
    once all rows are above the goal. What all rows share is left where their sum was best.
    """
    starts = [leaf.value.detach() for leaf in leaves]
    kept = [start.clone() for start in starts]
    moments = [(torch.zeros_like(start), torch.zeros_like(start)) for start in starts]
    best, total = torch.zeros(()), -float("inf")
    rate = 1.0
    for turn in range(steps + 1):
        with torch.enable_grad():
            for leaf in leaves:
                leaf.set(leaf.value.detach().requires_grad_(True))
            value = bounds()
            # nothing is known where a number is none
            found = torch.where(value.isfinite(), value, -torch.inf).detach()
            best, total = _keep(leaves, kept, found, best, total, first=turn == 0)
            if turn == steps or not value.requires_grad or bool((best > goal).all()):
                break
            wanted = torch.where(best > goal, 0.0, value).sum()
            slopes = torch.autograd.grad(wanted, [leaf.value for leaf in leaves], allow_unused=True)
        for index, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
            if slope is None:
                continue
            slope = torch.nan_to_num(slope)
            first, second = moments[index]
            first = FIRST * first + (1 - FIRST) * slope
            second = SECOND * second + (1 - SECOND) * slope.square()
            moments[index] = first, second
            bias = (1 - FIRST ** (turn + 1), 1 - SECOND ** (turn + 1))
            step = (first / bias[0]) / ((second / bias[1]).sqrt() + 1e-12)
            low, high = (torch.as_tensor(each).to(step) for each in leaf.limits)
            moved = leaf.value.detach() + leaf.rate * rate * step
            leaf.set(torch.minimum(torch.maximum(moved, low), high))
        rate *= COOLING
    for leaf, value in zip(leaves, kept, strict=True):
        leaf.set(value)
    return best


def _keep(
    leaves: list[Leaf], kept: list[torch.Tensor], found: torch.Tensor, best: torch.Tensor,
    total: float, *, first: bool,
) -> tuple[torch.Tensor, float]:  # fmt: skip
    """Remember the choices of the rows that are better than before."""
    better = torch.ones_like(found, dtype=torch.bool) if first else found > best
    whole = first or float(found.sum()) > total
    for index, leaf in enumerate(leaves):
        value = leaf.value.detach()
        if len(value) == len(found):
            kept[index] = torch.where(
                better.reshape(-1, *[1] * (value.ndim - 1)), value, kept[index]
            )
        elif whole:
            kept[index] = value
    return (
        found if first else torch.maximum(best, found),
        max(total, float(found.sum())),
    )
