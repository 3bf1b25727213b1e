"""Callbacks for the Trainer of Hugging Face: a monitor, and constraints."""

from __future__ import annotations

from typing import Any

from taut.control._in_pass import InPass
from taut.control._monitor import Monitor
from taut.control._optional import base, needs

_BASE = base("TrainerCallback", "transformers")


class MonitorCallback(_BASE):  # type: ignore[misc, valid-type]
    """Measure attention while a ``transformers.Trainer`` trains; the values go to its log.

    Parameters
    ----------
    trainer
        Whose model is watched and whose ``log`` is called, and so all that it reports to.
    **options
        Of :class:`taut.control.Monitor`. ``heads=False`` keeps the log of a large model short.

    Attributes
    ----------
    monitor
        The :class:`~taut.control.Monitor`, from the beginning of the training on.

    Examples
    --------
    >>> trainer = transformers.Trainer(model, arguments, ...)  # doctest: +SKIP
    >>> trainer.add_callback(MonitorCallback(trainer, every=100))  # doctest: +SKIP
    """

    def __init__(self, trainer: Any, **options: Any) -> None:
        needs(_BASE, "MonitorCallback needs transformers", "hf")
        if isinstance(trainer, type) or not callable(getattr(trainer, "log", None)):
            raise TypeError(f"trainer must be a transformers.Trainer, got {trainer!r}")
        self.trainer = trainer
        self.monitor: Monitor | None = None
        self._options = {"log": self._log, **options}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Await the first pass, of the model as the trainer has wrapped it."""
        options = {**self._options, "steps": state.global_step}
        self.monitor = Monitor(self.trainer.model_wrapped, **options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step; with accumulation, this comes once for all its passes."""
        if self.monitor is not None:
            self.monitor.step(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model alone."""
        if self.monitor is not None:
            self.monitor.close()

    def _log(self, values: dict[str, float], step: int) -> None:
        self.trainer.log(values)  # which knows the step


class ConstraintCallback(_BASE):  # type: ignore[misc, valid-type]
    """Keep constraints while a ``transformers.Trainer`` trains.

    Penalties are added to what the trainer's ``compute_loss`` gives, shared among the passes of a
    step that are accumulated; projections and clips follow every step of the optimiser. What is
    drawn depends on the step alone, so that a training that goes on from a checkpoint is the same.

    Parameters
    ----------
    trainer
        Whose loss it is.
    *constraints
        Made of the model that is trained: :func:`taut.control.constrain` and the like.

    Examples
    --------
    >>> constraint = taut.control.constrain(model, "VAR-III", strength=1e-8)  # doctest: +SKIP
    >>> trainer = transformers.Trainer(model, arguments, ...)  # doctest: +SKIP
    >>> trainer.add_callback(ConstraintCallback(trainer, constraint))  # doctest: +SKIP
    """

    def __init__(self, trainer: Any, *constraints: Any) -> None:
        needs(_BASE, "ConstraintCallback needs transformers", "hf")
        if isinstance(trainer, type) or not callable(getattr(trainer, "compute_loss", None)):
            raise TypeError(f"trainer must be a transformers.Trainer, got {trainer!r}")
        if not constraints or not all(hasattr(c, "penalty") for c in constraints):
            raise TypeError("give constraints, such as taut.control.constrain(model, 'VAR-III')")
        self.trainer, self.constraints = trainer, constraints
        self._handles: list[Any] = []

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Attach all constraints."""
        self.on_train_end(args, state, control)  # what a training that failed has left
        trained = {id(parameter) for parameter in self.trainer.model.parameters()}
        for constraint in self.constraints:
            if not any(id(parameter) in trained for parameter in constraint.model.parameters()):
                raise ValueError(
                    f"{type(constraint).__name__} was made of another model than the trainer's"
                )
            if not constraint.in_loss and hasattr(constraint, "attach"):
                plain = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
                self._handles.append(constraint.attach(plain))
        if any(constraint.in_loss for constraint in self.constraints):
            self.trainer.compute_loss = self._penalised(self.trainer.compute_loss)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Number the passes by the step."""
        for constraint in self.constraints:
            if isinstance(constraint, InPass):
                passes = state.global_step * args.gradient_accumulation_steps
                constraint.load_state_dict({"passes": passes})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model alone; the constraints can still be read and verified."""
        vars(self.trainer).pop("compute_loss", None)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _penalised(self, compute_loss: Any) -> Any:
        def computed(*args: Any, **kwargs: Any) -> Any:
            found = compute_loss(*args, **kwargs)
            loss, *rest = found if isinstance(found, tuple) else (found,)
            if loss.requires_grad:
                loss = loss + self._penalty(kwargs.get("num_items_in_batch"))
            return (loss, *rest) if isinstance(found, tuple) else loss

        return computed

    def _penalty(self, items: Any) -> Any:
        """The mean over the passes of a step, where the trainer does not divide by their number."""
        trainer = self.trainer
        total = sum(c.penalty() for c in self.constraints if c.in_loss)
        divided = not trainer.model_accepts_loss_kwargs or items is None
        if divided and trainer.compute_loss_func is None:
            return total
        return total / trainer.current_gradient_accumulation_steps
