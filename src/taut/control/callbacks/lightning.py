"""Callbacks for the Trainer of Lightning: a monitor, and constraints."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch import nn

from taut.control.callbacks.optional_base import base, needs
from taut.control.callbacks.penalty_names import penalty_names
from taut.control.callbacks.replaced_method import Function, Replaced
from taut.control.callbacks.started import Started, check_constraints
from taut.control.constraint import Constraint, holds_any
from taut.control.monitor.gradient_alarm import due, gradient_norm
from taut.control.monitor.monitor import Monitor

_BASE = base("Callback", "lightning.pytorch", "pytorch_lightning")


class LightningMonitor(_BASE):  # type: ignore[misc, valid-type]
    """Measure attention while Lightning trains; the values go to the loggers of its trainer.

    Works with ``lightning.pytorch`` and with ``pytorch_lightning``.

    Parameters
    ----------
    module
        Name of the module to measure in the LightningModule, such as ``"model"``; ``""`` is the
        LightningModule itself, if ``training_step`` calls ``self(...)``. If not given, it is the
        child with the most parameters that is made of other modules.
    **options
        Options of :class:`taut.control.Monitor`; ``heads=True`` logs every head, too.

    Attributes
    ----------
    monitor
        The :class:`~taut.control.Monitor`, once the training has begun.

    Examples
    --------
    >>> trainer = lightning.Trainer(callbacks=[LightningMonitor(every=100)])  # doctest: +SKIP
    """

    def __init__(self, module: str | None = None, **options: Any) -> None:
        needs(_BASE, "LightningMonitor needs Lightning", packages="lightning")
        self.module = module
        self.monitor: Monitor | None = None
        self._options = options
        self._norm: float | None = None  # of the gradient of this step, before it is clipped

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Await the first pass."""

        def log(values: dict[str, float], step: int) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)

        watched = _largest(pl_module) if self.module is None else _named(pl_module, self.module)
        options = {"log": log, **self._options, "steps": trainer.global_step}
        self.monitor = Monitor(watched, **options)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Read the gradient before it is clipped."""
        if self.monitor is not None and due(self.monitor.steps, self.monitor.steps + 1):
            self._norm = gradient_norm(pl_module.parameters())

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Count the step; while gradients are accumulated the number stays."""
        if self.monitor is not None:
            self.monitor.step(trainer.global_step, gradient_norm=self._norm)
        self._norm = None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the model alone."""
        if self.monitor is not None:
            self.monitor.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the model alone."""
        self.on_train_end(trainer, pl_module)


class LightningConstraints(_BASE):  # type: ignore[misc, valid-type]
    """Keep constraints while Lightning trains.

    Penalties are added to the loss that ``training_step`` returns; weights are changed after every
    step of the optimiser. How far random draws are is kept in Lightning's checkpoints. Constraints
    are started with the training, unless they are running, and those are stopped at its end.

    What ``training_step`` logs is the loss of the task, and so is ``outputs["loss"]`` in
    ``on_train_batch_end``: this callback moves to the front to put it there. Every penalty is
    logged under a name of its own such as ``penalty/orthogonality``: times its strength, as it is
    added to the loss of a batch.

    Parameters
    ----------
    *constraints
        Constraints on the model that is trained, such as :class:`taut.control.Orthogonality`.

    Examples
    --------
    >>> constraint = taut.control.Orthogonality(model, "VAR-III", strength=1e-8)  # doctest: +SKIP
    >>> trainer = lightning.Trainer(callbacks=[LightningConstraints(constraint)])  # doctest: +SKIP
    """

    def __init__(self, *constraints: Constraint) -> None:
        needs(_BASE, "LightningConstraints needs Lightning", packages="lightning")
        self.constraints = check_constraints(constraints)
        self._started = Started()
        self._replaced: list[Replaced] = []
        self._names: dict[int, str] = {}
        self._loss: Any = None  # the task's, of the last batch

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start all constraints."""
        self._names = penalty_names(self.constraints)
        if any(constraint.has_penalty for constraint in self.constraints):
            if not pl_module.automatic_optimization:
                raise ValueError(
                    "with manual optimisation nothing can be added to the loss from outside: add "
                    "constraint.penalty() to it in training_step, and leave it out here"
                )
            # A new list, as this hook is called in a loop over the old one.
            trainer.callbacks = [self, *(c for c in trainer.callbacks if c is not self)]
            penalised = functools.partial(self._penalised, pl_module)
            self._replaced.append(Replaced(pl_module, "training_step", penalised))
        for constraint in self.constraints:
            changed = constraint.parameters()
            held = [o for o in trainer.optimizers if not changed or holds_any(o, changed)]
            if changed and not held:
                raise ValueError(f"no optimiser changes the weights of {type(constraint).__name__}")
            self._started.start(constraint, held)

    def _penalised(self, pl_module: Any, training_step: Function) -> Function:
        def step(*args: Any, **kwargs: Any) -> Any:
            output = training_step(*args, **kwargs)
            loss = output.get("loss") if isinstance(output, Mapping) else output
            if loss is None:  # a batch that is left out
                return output
            self._loss = loss.detach()
            # This is the value of the sum too: optimisers with a line search compare values.
            total = loss + sum(
                self._penalty(pl_module, c) for c in self.constraints if c.has_penalty
            )
            return {**output, "loss": total} if isinstance(output, Mapping) else total

        return step

    def _penalty(self, pl_module: Any, constraint: Constraint) -> Any:
        """What a constraint adds to the loss, and a line of the log that says so."""
        penalty = constraint.penalty()
        pl_module.log(self._names[id(constraint)], penalty.detach())
        return penalty

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Show the loss of the task to all others."""
        if self._loss is not None and isinstance(outputs, dict) and "loss" in outputs:
            outputs["loss"] = self._loss / trainer.accumulate_grad_batches  # as Lightning has it

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the model alone."""
        for replaced in self._replaced:
            replaced.remove()
        self._replaced.clear()
        self._started.stop()
        self._loss = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the model alone."""
        self.on_train_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """How far the random draws of the constraints are."""
        states = {str(i): c.state_dict() for i, c in enumerate(self.constraints)}
        return {number: state for number, state in states.items() if state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from there."""
        for i, state in state_dict.items():
            self.constraints[int(i)].load_state_dict(state)


def _named(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        names = ", ".join(name for name, _ in module.named_children())
        raise ValueError(f"there is no module {name!r}; the first ones are {names}") from None


def _largest(module: nn.Module) -> nn.Module:
    """The model in a LightningModule: losses and metrics are modules too, but smaller."""
    made = [child for child in module.children() if any(True for _ in child.children())]
    return max(made, key=lambda child: sum(p.numel() for p in child.parameters()), default=module)
