"""Monitor: measure attention from time to time while a model is trained."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from taut._base.checks import whole_number
from taut.control.constraint import Constraint
from taut.control.monitor.alarms import Alarms, AttentionWarning
from taut.control.monitor.gradient_alarm import GradientAlarm, due, gradient_norm
from taut.control.monitor.layer_measurement import PREFIX, LayerMeasurement, together
from taut.control.monitor.measured_pass import measure_pass
from taut.control.monitor.next_pass import NextPass, inner, outer
from taut.models import has_lazy_parameters

Log = Callable[[dict[str, float], int], object]


class Measurement(NamedTuple):
    """What a monitor found at one step; ``missed`` names attention that could not be seen."""

    step: int
    values: dict[str, float]
    missed: tuple[str, ...]


class Monitor:
    """Measure every attention softmax of a model from time to time while it is trained.

    Before the training's own forward pass, the model is run once more on copies of the same
    inputs: in evaluation mode, without gradients, with its plain implementation of attention.
    Random numbers, buffers, modes, hooks and attributes of modules are put back. So the training
    is the same, bit for bit, as without a monitor; measuring its own pass would change it, as
    fused attention has to be switched off to see scores. Dropout is off in the measurement.
    Between measurements nothing is installed on the model.

    Parameters
    ----------
    model
        The module that is called in training; also compiled, or wrapped by DDP.
    every
        Optimiser steps between measurements. The first measurement is before the first step.
    log
        Called with all values and the step.
    weights
        Measure the largest singular value of each projection matrix too, at an SVD each.
    warn
        Warn (:class:`AttentionWarning`, once for each layer and kind) when the gradient norm grows
        to more than 1.5 times what it was in the last hundred steps (medians of readings every
        fifth step), when the mean entropy of a layer's heads falls below a tenth of its first value
        or that of a head below 0.01 nats, when the largest score of a head exceeds 64 and 4 times
        its first value, and when scores are NaN.
    constraints
        Constraints whose ``values()`` are logged too, as ``values/NAME``: without the strength.
    heads
        Log every head, besides the numbers of layers and of the model. ``history`` always has all.
    keep
        How many measurements ``history`` holds.
    steps
        Optimiser steps made before, if training is resumed from a checkpoint: measurements then
        come when an uninterrupted training would have them.

    Attributes
    ----------
    steps
        Optimiser steps so far; may be set, if training is resumed from a checkpoint.
    history
        The last measurements.
    layers
        The names of layers in logs, such as ``layer_03``, by the paths of their modules. They are
        numbered in the order in which the model first runs them.

    Notes
    -----
    Keys are ``taut/NAME`` for the model, ``taut/layer_03/NAME`` for a layer and
    ``taut/layer_03/head_05/NAME`` for a head. Names are ``local_constant`` and ``largest_constant``
    (mean and largest of the exact local constants of softmax in l2, at most ½), ``entropy`` (the
    mean, in nats), ``lowest_entropy`` of a head, and ``largest_score``; layers may have
    ``sigma_max/PROJECTION`` too. Rows of padding, where ``attention_mask`` is 0, do not
    count. If the additional pass fails, for lack of memory say, there is a warning and training
    continues; errors of ``log`` and of constraints are not caught. Forward hooks of others see that
    pass; they can tell it by ``torch.is_grad_enabled()``. Parameters are not copied, nor are
    arguments other than tensors and lists, tuples or dicts of them.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> monitor = Monitor(model, every=2)
    >>> for _ in range(5):
    ...     optimiser.zero_grad()
    ...     model(torch.randn(3, 4, 8)).square().mean().backward()
    ...     optimiser.step()
    ...     monitor.step()
    >>> [found.step for found in monitor.history]
    [0, 2, 4]
    >>> 0 < monitor.history[-1].values["taut/layer_00/head_01/local_constant"] <= 0.5
    True
    >>> monitor.layers
    {'self_attn': 'layer_00'}
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 100,
        log: Log | None = None,
        weights: bool = False,
        warn: bool = True,
        constraints: Sequence[Constraint] = (),
        heads: bool = False,
        keep: int = 100,
        steps: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.every = whole_number(every, name="every", least=1)
        self.steps = whole_number(steps, name="steps", least=0)
        self.history: deque[Measurement] = deque(maxlen=whole_number(keep, name="keep", least=1))
        self._model, self._log, self._weights, self._warn = inner(model), log, weights, warn
        self._constraints, self._heads = tuple(constraints), heads
        self.layers: dict[str, str] = {}
        self._alarms, self._gradients, self._closed = Alarms(), GradientAlarm(), False
        self._next = NextPass(outer(model), self._before)
        if self.steps % self.every == 0:
            self._next.wait()

    def step(
        self, steps: int | None = None, *, gradient_norm: float | Tensor | None = None
    ) -> None:
        """Count a step of the optimiser, or set how many it has made by now.

        ``gradient_norm`` is what ``torch.nn.utils.clip_grad_norm_`` returned. Without it, the
        gradients are read that the parameters still have, which clipping may have shortened.
        """
        before = self.steps
        self.steps = before + 1 if steps is None else steps
        if self._warn and not self._closed and due(before, self.steps):
            self._check_gradient(gradient_norm)
        if self.steps > before and not self._next.met and not self._closed:
            self._tell(
                "", "calls", "no forward pass with gradients was seen: the monitor's module is not "
                "the one that training calls, or its call is a part of a compiled function; then "
                "call measure() with its inputs",
            )  # fmt: skip
        if self.steps // self.every != before // self.every and not self._closed:
            self._next.wait()

    def _check_gradient(self, norm: float | Tensor | None) -> None:
        found = gradient_norm(self._model.parameters()) if norm is None else float(norm)
        text = None if found is None else self._gradients.add(found)
        if text is not None:
            self._tell("", "gradient", f"step {self.steps}: {text}")

    def measure(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Measure now, on these inputs of the model."""
        layers, missed = measure_pass(self._model, args, kwargs, weights=self._weights)
        return self._take(layers, missed)

    def close(self) -> None:
        """Measure no more, except by :meth:`measure`."""
        self._closed = True
        self._next.stop()

    def _before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if has_lazy_parameters(self._model):
            return False
        try:
            layers, missed = measure_pass(self._model, args, kwargs, weights=self._weights)
        except Exception as error:
            self._tell("", "error", f"attention could not be measured: {error!r}")
        else:
            self._take(layers, missed)
        return True

    def _take(self, layers: list[LayerMeasurement], missed: list[str]) -> dict[str, float]:
        logged = {f"{PREFIX}/{name}": value for name, value in together(layers).items()}
        single: dict[str, float] = {}
        for layer in layers:
            label = self.layers.setdefault(layer.name, f"layer_{len(self.layers):02d}")
            logged |= layer.summary(label)
            single |= layer.heads(label)
        values = logged | single
        if self._heads:
            logged = dict(values)
        for constraint in self._constraints:
            # Not "penalty/": that is what a trainer adds to the loss, strength included.
            more = {f"values/{key}": float(value) for key, value in constraint.values().items()}
            if twice := sorted(more.keys() & values):
                raise ValueError(f"two constraints have values named {twice}")
            values |= more
            logged |= more
        self.history.append(Measurement(self.steps, values, tuple(missed)))
        if self._log is not None:
            self._log(logged, self.steps)
        for what in missed:
            self._tell(what, "missed", f"attention whose scores could not be seen: {what}")
        if not layers and not missed:
            self._tell("", "none", "no attention was seen in the model")
        for text in self._alarms.check(layers, self.steps) if self._warn else ():
            warnings.warn(text, AttentionWarning, stacklevel=4)
        return values

    def _tell(self, layer: str, kind: str, text: str) -> None:
        if self._alarms.once(layer, kind):
            warnings.warn(text, AttentionWarning, stacklevel=3)
