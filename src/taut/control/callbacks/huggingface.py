"""Callbacks for the Trainer of Hugging Face: a monitor, and constraints."""

from __future__ import annotations

from typing import Any

import torch

from taut.control.callbacks.optional_base import base, needs
from taut.control.callbacks.penalty_names import penalty_names
from taut.control.callbacks.replaced_method import Function, Replaced
from taut.control.callbacks.started import Started, check_constraints
from taut.control.constraint import Constraint
from taut.control.monitor.monitor import Monitor

_BASE = base("TrainerCallback", "transformers")


class HuggingFaceMonitor(_BASE):  # type: ignore[misc, valid-type]
    """Measure attention while a ``transformers.Trainer`` trains; the values go to its log.

    Parameters
    ----------
    trainer
        The trainer whose model is measured. The values go to its ``log``, and so to all that it
        reports to.
    **options
        Options of :class:`taut.control.Monitor`; ``heads=True`` logs every head, too.

    Attributes
    ----------
    monitor
        The :class:`~taut.control.Monitor`, once the training has begun.

    Examples
    --------
    >>> trainer = transformers.Trainer(model, arguments, ...)  # doctest: +SKIP
    >>> trainer.add_callback(HuggingFaceMonitor(trainer, every=100))  # doctest: +SKIP
    """

    def __init__(self, trainer: Any, **options: Any) -> None:
        needs(_BASE, "HuggingFaceMonitor needs transformers", "hf")
        if isinstance(trainer, type) or not callable(getattr(trainer, "log", None)):
            raise TypeError(f"trainer must be a transformers.Trainer, got {trainer!r}")
        self.trainer = trainer
        self.monitor: Monitor | None = None
        self._options = {"log": self._log, **options}
        self._norm: Any = None  # of the gradient of this step, before it was clipped
        self._replaced: list[Replaced] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Await the first pass, of the model as the trainer has wrapped it."""
        self.on_train_end(args, state, control)  # what a training that failed has left
        options = {**self._options, "steps": state.global_step}
        self.monitor = Monitor(self.trainer.model_wrapped, **options)
        # The trainer clips before any callback comes, and tells none of them what the norm was.
        if hasattr(self.trainer, "_get_grad_norm"):
            self._replaced = [Replaced(self.trainer, "_get_grad_norm", self._heard)]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step; with accumulation, this comes once for all its passes."""
        if self.monitor is not None:
            self.monitor.step(state.global_step, gradient_norm=self._norm)
        self._norm = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model alone."""
        for replaced in self._replaced:
            replaced.remove()
        self._replaced.clear()
        if self.monitor is not None:
            self.monitor.close()

    def _heard(self, norm: Function) -> Function:
        def found(*args: Any, **kwargs: Any) -> Any:
            self._norm = norm(*args, **kwargs)
            return self._norm

        return found

    def _log(self, values: dict[str, float], step: int) -> None:
        self.trainer.log(values)  # which knows the step


class HuggingFaceConstraints(_BASE):  # type: ignore[misc, valid-type]
    """Keep constraints while a ``transformers.Trainer`` trains.

    The gradients of penalties are added to those of the loss that ``compute_loss`` returns, shared
    among the passes of a step that are accumulated; weights are changed after every step of the
    optimiser. Random draws depend on the step alone, so that a training that is resumed from a
    checkpoint is the same. Constraints are started with the training, unless they are running, and
    those are stopped at its end.

    The trainer logs the loss of the task alone as ``loss`` and ``train_loss``. Every entry with a
    ``loss`` also has the penalties, each under a name of its own such as
    ``penalty/orthogonality``: times its strength, as it is added to the loss, and averaged over the
    same steps and processes. Their sum with ``loss`` is what is minimised, and ``grad_norm`` is
    that of its gradient. Losses of evaluation hold no penalties.

    Parameters
    ----------
    trainer
        The trainer whose loss the penalties are added to.
    *constraints
        Constraints on the model that it trains, such as :class:`taut.control.Orthogonality`.

    Examples
    --------
    >>> constraint = taut.control.Orthogonality(model, "VAR-III", strength=1e-8)  # doctest: +SKIP
    >>> trainer = transformers.Trainer(model, arguments, ...)  # doctest: +SKIP
    >>> trainer.add_callback(HuggingFaceConstraints(trainer, constraint))  # doctest: +SKIP
    """

    def __init__(self, trainer: Any, *constraints: Constraint) -> None:
        needs(_BASE, "HuggingFaceConstraints needs transformers", "hf")
        if isinstance(trainer, type) or not callable(getattr(trainer, "compute_loss", None)):
            raise TypeError(f"trainer must be a transformers.Trainer, got {trainer!r}")
        self.trainer, self.constraints = trainer, check_constraints(constraints)
        self._started = Started()
        self._replaced: list[Replaced] = []
        self._names: dict[int, str] = {}
        self._sums: dict[str, torch.Tensor] = {}  # of the steps since the last entry of the log
        self._logged = 0  # the step of that entry

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Start all constraints."""
        self.on_train_end(args, state, control)  # what a training that failed has left
        trained = {id(parameter) for parameter in self.trainer.model.parameters()}
        plain = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        for constraint in self.constraints:
            if not any(id(parameter) in trained for parameter in constraint.model.parameters()):
                raise ValueError(
                    f"{type(constraint).__name__} was made from another model than the trainer's"
                )
            self._started.start(constraint, [plain])
        given = [
            constraint
            for callback in self.trainer.callback_handler.callbacks
            if isinstance(callback, HuggingFaceConstraints)
            for constraint in callback.constraints
        ]
        self._names = penalty_names([*given, *self.constraints])
        self._sums, self._logged = {}, state.global_step
        if any(constraint.has_penalty for constraint in self.constraints):
            self._replaced = [
                Replaced(self.trainer, "compute_loss", self._penalised),
                Replaced(self.trainer, "log", self._with_penalties),
            ]

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Number the passes by the step."""
        passes = state.global_step * args.gradient_accumulation_steps
        for constraint in self.constraints:
            constraint.load_state_dict({"passes": passes})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model alone; the constraints can still be read and verified."""
        for replaced in self._replaced:
            replaced.remove()
        self._replaced.clear()
        self._started.stop()

    def _penalised(self, compute_loss: Function) -> Function:
        def computed(*args: Any, **kwargs: Any) -> Any:
            found = compute_loss(*args, **kwargs)
            loss, *rest = found if isinstance(found, tuple) else (found,)
            if loss.requires_grad:
                penalty = self._penalty(kwargs.get("num_items_in_batch"))
                # The gradient is that of the sum, the value that of the loss: the trainer uses the
                # value for its log alone. A penalty that is inf or NaN still makes it NaN.
                loss = loss + (penalty - penalty.detach())
            return (loss, *rest) if isinstance(found, tuple) else loss

        return computed

    def _penalty(self, items: Any) -> Any:
        """All penalties, divided by the passes of a step unless the trainer does that."""
        passes = self.trainer.current_gradient_accumulation_steps
        total: Any = 0
        for constraint in self.constraints:
            if constraint.has_penalty:
                penalty = constraint.penalty()
                name = self._names[id(constraint)]
                self._sums[name] = self._sums.get(name, 0.0) + penalty.detach() / passes
                total = total + penalty
        return total / passes if self._scaled(items) else total

    def _scaled(self, items: Any) -> bool:
        """Whether the trainer takes the loss to be scaled for accumulation already."""
        trainer = self.trainer
        said: bool | None = getattr(trainer, "loss_is_scaled_for_ga", None)  # transformers 5.22
        if said is not None:
            return said
        counted = trainer.model_accepts_loss_kwargs and items is not None
        return counted or trainer.compute_loss_func is not None

    def _with_penalties(self, log: Function) -> Function:
        """A log that adds the penalties of the same steps to every training loss."""

        def logged(logs: dict[str, float], *args: Any, **kwargs: Any) -> Any:
            steps = self.trainer.state.global_step - self._logged
            if "loss" in logs and steps > 0 and self._sums:
                means = torch.stack([value.float() for value in self._sums.values()]) / steps
                means = self.trainer.accelerator.reduce(means, "mean")  # over the processes
                logs.update(zip(self._sums, means.tolist(), strict=True))
                self._sums, self._logged = {}, self.trainer.state.global_step
            return log(logs, *args, **kwargs)

        return logged
