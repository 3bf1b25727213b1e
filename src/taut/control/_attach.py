"""Constraints on an optimiser: whether it is the right one, and a handle to end it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class Attached:
    """Handle of a constraint on an optimiser; ``kept`` lists those that are in force."""

    def __init__(self, handle: Any, kept: list[Attached]) -> None:
        self._handle, self._kept = handle, kept
        kept.append(self)

    def remove(self) -> None:
        """Do nothing more after or before its steps."""
        self._handle.remove()
        if self in self._kept:
            self._kept.remove(self)


def holds_any(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> bool:
    """Whether an optimiser changes one of the parameters."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return any(id(parameter) in held for parameter in parameters)


def check(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> None:
    """An optimiser of another model would leave the constraint without effect."""
    if not holds_any(optimizer, parameters):
        raise ValueError(
            "this optimiser holds none of the constrained weights: make the constraint of the "
            "model that it trains, after the model was put into shards or onto a device"
        )
