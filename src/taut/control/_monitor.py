"""Monitor: measure attention from time to time while a model is trained."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import nn

from taut._checks import whole_number
from taut.control._alarms import Alarms, AttentionWarning
from taut.control._aside import unfinished
from taut.control._next_pass import NextPass, inner, outer
from taut.control._watched import Watched, watch

Log = Callable[[dict[str, float], int], object]


class Penalty(Protocol):
    """Anything that has numbers to log."""

    def values(self) -> dict[str, float]:
        """The numbers now, by name."""


class Measurement(NamedTuple):
    """What a monitor found at one step; ``missed`` names attention that could not be seen."""

    step: int
    values: dict[str, float]
    missed: tuple[str, ...]


class Monitor:
    """Measure every attention softmax of a model each so many steps of its training.

    Before the training's own forward pass, the model is run once more on copies of the same
    inputs: in evaluation mode, without gradients, with its plain implementation of attention.
    Random numbers, buffers, modes, hooks and attributes of modules are put back. So the training
    is the same, bit for bit, as without a monitor, which watching its own pass could not give, as
    fused attention has to be switched off to see scores. What is measured is the model without
    dropout. Between measurements nothing is installed on the model.

    Parameters
    ----------
    model
        The module that is called in training; also compiled, or wrapped by DDP.
    every
        Optimiser steps between measurements. The first one is before the first step.
    log
        Called with all values and the step.
    weights
        Also the largest singular value of each projection matrix, which costs an SVD each.
    warn
        Warn (:class:`AttentionWarning`, once for each layer and kind) when the mean entropy of a
        layer's heads falls below a tenth of its first value or that of a head below 0.01 nats, when
        the largest score of a head exceeds 64 and 4 times its first value, and when scores are NaN.
    penalties
        Objects whose ``.values()`` are logged too, as ``values/NAME``: of a constraint, those
        without its strength.
    heads
        Whether single heads are logged, or only what sums up their layers. ``history`` has both.
    keep
        How many measurements ``history`` holds.
    steps
        Optimiser steps before, where training goes on from a checkpoint: then the first measurement
        is when a training in one go would have it.

    Attributes
    ----------
    steps
        Optimiser steps so far; may be set, where training goes on from a checkpoint.
    history
        The last measurements.

    Notes
    -----
    Keys are ``attention/LAYER/head_H/NAME`` with the names ``largest_score``, ``mean_entropy``
    (nats), ``mean_constant`` and ``largest_constant`` (the exact local constants of softmax in l2,
    at most ½), and ``attention/LAYER/NAME`` over the heads of a layer, with ``lowest_entropy`` of
    a head and ``sigma_max/PROJECTION``. Rows of padding, where ``attention_mask`` is 0, do not
    count. If the additional pass fails, for want of memory say, there is a warning and training
    goes on; what ``log`` and penalties raise is not caught. Forward hooks of others see that pass;
    they can tell it by ``torch.is_grad_enabled()``. Parameters, and arguments that are neither
    tensors nor lists, tuples or dicts of them, are not copied.

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
    >>> 0 < monitor.history[-1].values["attention/self_attn/head_1/largest_constant"] <= 0.5
    True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 100,
        log: Log | None = None,
        weights: bool = False,
        warn: bool = True,
        penalties: Sequence[Penalty] = (),
        heads: bool = True,
        keep: int = 100,
        steps: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.every = whole_number(every, name="every", least=1)
        self.steps = whole_number(steps, name="steps", least=0)
        self.history: deque[Measurement] = deque(maxlen=whole_number(keep, name="keep", least=1))
        self._model, self._log, self._weights, self._warn = inner(model), log, weights, warn
        self._penalties, self._heads = tuple(penalties), heads
        self._alarms, self._closed = Alarms(), False
        self._next = NextPass(outer(model), self._before)
        if self.steps % self.every == 0:
            self._next.wait()

    def step(self, steps: int | None = None) -> None:
        """Say that the optimiser has made a step, or how many it has made by now."""
        before = self.steps
        self.steps = before + 1 if steps is None else steps
        if self.steps > before and not self._next.met and not self._closed:
            self._tell(
                "", "calls", "no forward pass with gradients was seen: the monitor's module is not "
                "the one that training calls, or its call is a part of a compiled function; then "
                "call measure() with its inputs",
            )  # fmt: skip
        if self.steps // self.every != before // self.every and not self._closed:
            self._next.wait()

    def measure(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Measure now, on these inputs of the model."""
        layers, missed = watch(self._model, args, kwargs, weights=self._weights)
        return self._take(layers, missed)

    def close(self) -> None:
        """Measure no more, but when asked to by :meth:`measure`."""
        self._closed = True
        self._next.stop()

    def _before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if unfinished(self._model):
            return False
        try:
            layers, missed = watch(self._model, args, kwargs, weights=self._weights)
        except Exception as error:
            self._tell("", "error", f"attention could not be measured: {error!r}")
        else:
            self._take(layers, missed)
        return True

    def _take(self, layers: list[Watched], missed: list[str]) -> dict[str, float]:
        values = {key: value for layer in layers for key, value in layer.values().items()}
        logged = dict(values)
        if not self._heads:
            logged = {key: value for layer in layers for key, value in layer.summary().items()}
        for penalty in self._penalties:
            # Not "penalty/": that is what a trainer adds to the loss, strength included.
            more = {f"values/{key}": float(value) for key, value in penalty.values().items()}
            if more.keys() & values:
                raise ValueError(f"two penalties have values named {sorted(more.keys() & values)}")
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
