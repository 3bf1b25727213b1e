"""A callback that runs a monitor in the Trainer of Hugging Face."""

from __future__ import annotations

from typing import Any

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
