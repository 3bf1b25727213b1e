"""Start constraints for a trainer, and stop what was started at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from taut.control.constraint import Constraint


class Started:
    """What a callback has started. Constraints that ran before lose its optimisers only."""

    def __init__(self) -> None:
        self._stops: list[Callable[[], None]] = []

    def start(self, constraint: Constraint, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Start a constraint on the optimisers of a trainer."""
        ran = constraint.running
        constraint.start(*optimizers)
        self._stops.append(partial(constraint.stop, *optimizers) if ran else constraint.stop)

    def stop(self) -> None:
        """Stop what was started."""
        for stop in self._stops:
            stop()
        self._stops.clear()


def check_constraints(given: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """The constraints that a callback was given, checked."""
    if not given or not all(isinstance(constraint, Constraint) for constraint in given):
        raise TypeError("give constraints, such as taut.control.Orthogonality(model, 'VAR-III')")
    return given
