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
        needs(_BASE, "MonitorCallback needs transformers: pip install 'taut[hf]'")
        if isinstance(trainer, type) or not callable(getattr(trainer, "log", None)):
            raise TypeError(f"trainer must be a transformers.Trainer, got {trainer!r}")
        self.trainer = trainer
        self.monitor: Monitor | None = None
        self._options = {"log": self._log, **options}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Await the first pass, of the model as the trainer has wrapped it."""
        self.monitor = Monitor(self.trainer.model_wrapped, **self._options)
        self.monitor.steps = state.global_step

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

    Penalties are added to the loss that the model gives out, shared among the passes of a step that
    are accumulated; projections and clips follow every step of the optimiser.

    Parameters
    ----------
    *constraints
        Made of the model that is trained: :func:`taut.control.constrain` and the like.

    Examples
    --------
    >>> constraint = taut.control.constrain(model, "VAR-III", strength=1e-8)  # doctest: +SKIP
    >>> trainer = transformers.Trainer(
    ...     model, arguments, callbacks=[ConstraintCallback(constraint)], ...
    ... )  # doctest: +SKIP
    """

    def __init__(self, *constraints: Any) -> None:
        needs(_BASE, "ConstraintCallback needs transformers: pip install 'taut[hf]'")
        if not constraints or not all(hasattr(c, "penalty") for c in constraints):
            raise TypeError("give constraints, such as taut.control.constrain(model, 'VAR-III')")
        self.constraints = constraints
        self._handles: list[Any] = []
        self._passes = 1

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Attach all constraints."""
        self._passes = args.gradient_accumulation_steps
        plain = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        for constraint in self.constraints:
            if constraint.in_loss:
                hook = constraint.model.register_forward_hook(
                    lambda module, _, kwargs, output, c=constraint: self._add(c, kwargs, output),
                    with_kwargs=True,
                )
                self._handles.append(hook)
            elif hasattr(constraint, "attach"):
                self._handles.append(constraint.attach(plain))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Draws depend on the step alone: a training that goes on later draws the same."""
        for constraint in self.constraints:
            if isinstance(constraint, InPass):
                constraint.load_state_dict({"passes": state.global_step * self._passes})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model alone; the constraints can still be read and verified."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _add(self, constraint: Any, kwargs: Any, output: Any) -> Any:
        loss = output.get("loss") if hasattr(output, "get") else None
        if loss is None or not loss.requires_grad:
            return output
        # A loss that is divided by the tokens of the whole step is not divided by its passes again.
        whole = kwargs.get("num_items_in_batch") is not None
        output["loss"] = loss + constraint.penalty() / (self._passes if whole else 1)
        return output
