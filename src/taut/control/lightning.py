"""Callbacks for the Trainer of Lightning: a monitor, and constraints."""

from __future__ import annotations

from typing import Any

from torch import nn

from taut.control._monitor import Monitor
from taut.control._optional import base, needs

_BASE = base("Callback", "lightning.pytorch", "pytorch_lightning")


class MonitorCallback(_BASE):  # type: ignore[misc, valid-type]
    """Measure attention while Lightning trains; the values go to the loggers of its trainer.

    Works with ``lightning.pytorch`` and with ``pytorch_lightning``.

    Parameters
    ----------
    module
        Name of the module to watch in the LightningModule, such as ``"model"``; ``""`` is the
        LightningModule itself, if ``training_step`` calls ``self(...)``. If not given, it is the
        child with the most parameters that is made of other modules.
    **options
        Of :class:`taut.control.Monitor`. ``heads=False`` keeps the logs of a large model short.

    Attributes
    ----------
    monitor
        The :class:`~taut.control.Monitor`, from the beginning of the training on.

    Examples
    --------
    >>> trainer = lightning.Trainer(callbacks=[MonitorCallback(every=100)])  # doctest: +SKIP
    """

    def __init__(self, module: str | None = None, **options: Any) -> None:
        needs(_BASE, "MonitorCallback needs Lightning: pip install lightning")
        self.module = module
        self.monitor: Monitor | None = None
        self._options = options

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Await the first pass."""

        def log(values: dict[str, float], step: int) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)

        watched = _largest(pl_module) if self.module is None else _named(pl_module, self.module)
        self.monitor = Monitor(watched, **{"log": log, **self._options})
        self.monitor.steps = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Count the step; while gradients are accumulated the number stays."""
        if self.monitor is not None:
            self.monitor.step(trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the model alone."""
        if self.monitor is not None:
            self.monitor.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the model alone."""
        self.on_train_end(trainer, pl_module)


class ConstraintCallback(_BASE):  # type: ignore[misc, valid-type]
    """Keep constraints while Lightning trains.

    Penalties on weights are added to the gradients before every step, and projections and clips
    follow it. What depends on a pass (``"AM"``, :class:`~taut.control.LocalConstant`) must be added
    to the loss: return ``loss + constraint.penalty()`` from ``training_step``.

    Parameters
    ----------
    *constraints
        Made of the model that is trained: :func:`taut.control.constrain` and the like.

    Examples
    --------
    >>> constraint = taut.control.constrain(model, ["LA", "LF"], strength=1e-8)  # doctest: +SKIP
    >>> trainer = lightning.Trainer(callbacks=[ConstraintCallback(constraint)])  # doctest: +SKIP
    """

    def __init__(self, *constraints: Any) -> None:
        needs(_BASE, "ConstraintCallback needs Lightning: pip install lightning")
        for constraint in constraints:
            if not hasattr(constraint, "attach") or "AM" in getattr(constraint, "parts", ()):
                raise ValueError(
                    f"{type(constraint).__name__} depends on the pass: return loss + "
                    "constraint.penalty() from training_step instead"
                )
        self.constraints = constraints
        self._handles: list[Any] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach all constraints to the optimisers."""
        for optimizer in trainer.optimizers[:1]:
            self._handles += [constraint.attach(optimizer) for constraint in self.constraints]

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the model alone."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the model alone."""
        self.on_train_end(trainer, pl_module)


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
