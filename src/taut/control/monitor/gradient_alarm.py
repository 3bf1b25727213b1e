"""When to warn of gradients: their norm leaves what it was in recent steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

import torch
from torch import Tensor

# Optimiser steps between two readings, and how many readings a new one is compared with.
EVERY, RECENT = 5, 20
# The median of so many readings has to grow: a single batch may have any gradient.
SMOOTH = 3
# Times the median of the recent readings. Set on trainings of small language models: the largest
# value in 15 healthy ones was 1.4 (docs/results/early-warning.md).
GROWTH = 1.5


class GradientAlarm:
    """Says when the norm of the gradient leaves what it was in recent steps.

    The gradient norm was the earliest of fourteen signals of a training that goes wrong. This alarm
    needs no healthy training to compare with: it compares the median of three readings with that
    of the twenty before, and warns where it is more than ``growth`` times that. :class:`Monitor`
    has one, and takes a reading every fifth step.

    Examples
    --------
    >>> alarm = GradientAlarm()
    >>> any(alarm.add(1.0) for _ in range(30))
    False
    >>> [alarm.add(2.0) is not None for _ in range(2)]
    [False, True]
    """

    growth = GROWTH

    def __init__(self) -> None:
        self._norms: deque[float] = deque(maxlen=RECENT + SMOOTH)

    def add(self, norm: float) -> str | None:
        """Take a reading; what to warn of, if it is time to."""
        self._norms.append(norm if math.isfinite(norm) else math.inf)
        if len(self._norms) < RECENT + SMOOTH:
            return None
        norms = list(self._norms)
        before, now = median(norms[:RECENT]), median(norms[RECENT:])
        if now <= self.growth * before:
            return None
        grown = f"from {before:.3g} to {now:.3g}" if math.isfinite(now) else "beyond all numbers"
        return (
            f"the gradient norm grew {grown} within {EVERY * RECENT} steps; a lower learning rate, "
            "clipping, a look at the last batches, and Projection or QKClip help"
        )


def due(before: int, now: int) -> bool:
    """Whether a reading is to be taken between two numbers of steps."""
    return now // EVERY != before // EVERY


def gradient_norm(parameters: Iterable[Tensor]) -> float | None:
    """The l2 norm of the gradients that are there; of sharded ones the part of this process."""
    found = [each.grad for each in parameters if each.grad is not None]
    local = [grad.to_local() if hasattr(grad, "to_local") else grad for grad in found]
    dense = [grad.coalesce().values() if grad.is_sparse else grad for grad in local]
    if not dense:
        return None
    return float(torch.nn.utils.get_total_norm([grad.detach() for grad in dense]))
