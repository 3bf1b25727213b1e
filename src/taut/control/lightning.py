"""Callbacks for the Trainer of Lightning: a monitor, and constraints."""

from __future__ import annotations

from typing import Any

from torch import nn

from taut.control._attach import holds_any
from taut.control._in_pass import InPass
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
        needs(_BASE, "MonitorCallback needs Lightning", packages="lightning")
        self.module = module
        self.monitor: Monitor | None = None
        self._options = options

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Await the first pass."""

        def log(values: dict[str, float], step: int) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)

        watched = _largest(pl_module) if self.module is None else _named(pl_module, self.module)
        options = {"log": log, **self._options, "steps": trainer.global_step}
        self.monitor = Monitor(watched, **options)

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

    Penalties are added to what ``training_step`` returns; projections and clips follow every step
    of the optimiser. What a penalty draws is kept in Lightning's checkpoints.

    Parameters
    ----------
    *constraints
        Made of the model that is trained: :func:`taut.control.constrain` and the like.

    Examples
    --------
    >>> constraint = taut.control.constrain(model, "VAR-III", strength=1e-8)  # doctest: +SKIP
    >>> trainer = lightning.Trainer(callbacks=[ConstraintCallback(constraint)])  # doctest: +SKIP
    """

    def __init__(self, *constraints: Any) -> None:
        needs(_BASE, "ConstraintCallback needs Lightning", packages="lightning")
        if not constraints or not all(hasattr(c, "penalty") for c in constraints):
            raise TypeError("give constraints, such as taut.control.constrain(model, 'VAR-III')")
        self.constraints = constraints
        self._handles: list[Any] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach all constraints."""
        if any(c.in_loss for c in self.constraints):
            if not pl_module.automatic_optimization:
                raise ValueError(
                    "with manual optimisation nothing can be added to the loss from outside: add "
                    "constraint.penalty() to it in training_step, and leave it out here"
                )
            pl_module.training_step = self._penalised(pl_module.training_step)
        for constraint in self.constraints:
            if not constraint.in_loss and hasattr(constraint, "attach"):
                held = [o for o in trainer.optimizers if holds_any(o, constraint.parameters())]
                if not held:
                    raise ValueError(
                        f"no optimiser changes the weights of {type(constraint).__name__}"
                    )
                self._handles += [constraint.attach(optimizer) for optimizer in held]

    def _penalised(self, training_step: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            output = training_step(*args, **kwargs)
            extra = sum(c.penalty() for c in self.constraints if c.in_loss)
            if isinstance(output, dict):
                return {**output, "loss": output["loss"] + extra}
            return None if output is None else output + extra

        return step

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the model alone."""
        pl_module.__dict__.pop("training_step", None)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the model alone."""
        self.on_train_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """How far the draws of the penalties are."""
        return {
            str(i): constraint.state_dict()
            for i, constraint in enumerate(self.constraints)
            if isinstance(constraint, InPass)
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
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
