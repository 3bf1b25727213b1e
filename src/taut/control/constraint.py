"""Constraint: the protocol that every constraint on a training follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from taut.control.verified import Verified

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on


class Constraint(ABC):
    """A condition imposed on a model during training.

    The verbs mean the same for every constraint. Making one only finds and checks what it is about:
    no hook is installed and no weight is changed before :meth:`start`.

    ======================  ================================================================
    ``start(optimizer)``    be in force from now on, and after every step of the optimiser
    ``penalty()``           what to add to the loss of a pass; zero where there is nothing
    ``after_step()``        change the weights, as after a step; started optimisers call it
    ``values()``            numbers for a log
    ``verify()``            what holds now, with certificates
    ``stop()``              remove all hooks; the model computes what it computes now
    ``bake()``              stop for good and leave a plain model
    ======================  ================================================================

    A new constraint implements :meth:`verify` and those of ``_begin``, ``_end``, ``_penalty``,
    ``_after_step``, ``_fold`` and ``parameters`` that it needs; the others do nothing.

    Attributes
    ----------
    model
        The model that is constrained.
    name
        The name of the penalty in logs, after ``penalty/``; may be set to another one.
    running
        Whether it was started and not stopped.
    """

    name: str
    has_penalty = False  # whether penalty() can be anything but zero

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model = model
        self.running = False
        self._was_started = False
        self._hooks: dict[torch.optim.Optimizer, list[Any]] = {}

    def start(self, *optimizers: torch.optim.Optimizer) -> Self:
        """Be in force from now on.

        A second call adds optimisers, and puts back what somebody else has removed from the model.

        Parameters
        ----------
        *optimizers
            Those that train the model. Without any, call :meth:`after_step` after every step.
        """
        self._check(optimizers)
        self._begin()
        self.running = self._was_started = True
        for optimizer in optimizers:
            if optimizer not in self._hooks and self.parameters():
                self._hooks[optimizer] = self._follow(optimizer)
        return self

    def stop(self, *optimizers: torch.optim.Optimizer) -> None:
        """Remove the hooks on these optimisers, or without any, on the model and all optimisers.

        The model computes what it computes now, and can still be verified.
        """
        for optimizer in optimizers or tuple(self._hooks):
            for handle in self._hooks.pop(optimizer, ()):
                handle.remove()
        if not optimizers and self.running:
            self._end()
            self.running = False

    def penalty(self) -> torch.Tensor:
        """What to add to the loss of the last training pass; zero where there is nothing to add."""
        self._check_running("penalty()")
        return self._penalty()

    def after_step(self) -> None:
        """Change the weights as after a step of an optimiser; many constraints change nothing."""
        self._check_running("after_step()")
        self._check_held(self.parameters())
        self._after_step()

    @abstractmethod
    def verify(self) -> list[Verified]:
        """What holds now, one record for each part of the model that is constrained."""

    def bake(self) -> nn.Module:
        """Stop for good: the plain model, with what was constrained in its weights."""
        if not self._was_started:
            raise RuntimeError(
                f"{type(self).__name__} was never started: call start() before bake()"
            )
        self.stop()
        self._fold()
        return self.model

    def values(self) -> dict[str, float]:
        """Numbers for a log, by name, without the strength of a penalty."""
        return {}

    def parameters(self) -> list[nn.Parameter]:
        """Parameters that it changes, or whose gradients it changes, at the steps of an optimiser.

        Empty for constraints that act through the loss or are a part of the model.
        """
        return []

    def state_dict(self) -> dict[str, int]:
        """What a training that is resumed needs in order to draw as this one would."""
        return {}

    def load_state_dict(self, state: Mapping[str, int]) -> None:  # noqa: B027  it may do nothing
        """Resume: ``passes`` says how many training passes came before.

        Random draws depend on that number; constraints that draw nothing ignore it.
        """

    def _begin(self) -> None:  # noqa: B027  it may do nothing
        """Act on the model at the start. Another call must do no harm."""

    def _end(self) -> None:  # noqa: B027  it may do nothing
        """Remove what ``_begin`` has installed beside the model."""

    def _penalty(self) -> torch.Tensor:
        return self._zero()

    def _after_step(self) -> None:  # noqa: B027  it may do nothing
        """Change the weights after a step."""

    def _fold(self) -> None:  # noqa: B027  it may do nothing
        """Leave plain weights."""

    def _follow(self, optimizer: torch.optim.Optimizer) -> list[Any]:
        """Hooks on an optimiser."""
        return [optimizer.register_step_post_hook(lambda *_: self._after_step())]

    def _check(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Refuse optimisers of another model: they would leave the constraint without effect."""
        wanted = self.parameters()
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise TypeError(
                    f"start() takes optimisers of torch.optim, got {type(optimizer).__name__}"
                )
            if wanted and not holds_any(optimizer, wanted):
                raise ValueError(
                    "this optimiser holds none of the constrained weights: make the constraint "
                    "from the model that it trains, after the model was sharded or moved"
                )

    def _check_running(self, verb: str) -> None:
        if not self.running:
            raise RuntimeError(f"{type(self).__name__} is not running: call start() before {verb}")

    def _check_held(self, weights: Iterable[torch.Tensor]) -> None:
        """Refuse weights that the model has no more: what holds of them says nothing of it."""
        held = {id(parameter) for parameter in self.model.parameters()}
        if any(id(weight) not in held for weight in weights):
            raise RuntimeError(
                f"the model has other parameters than when this {type(self).__name__} was made, as "
                "after load_state_dict(assign=True): make the constraint and the optimiser anew"
            )

    def _zero(self) -> torch.Tensor:
        return torch.zeros((), device=next(self.model.parameters()).device)


def holds_any(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> bool:
    """Whether an optimiser changes one of the parameters."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return any(id(parameter) in held for parameter in parameters)
