"""Predict the consequence of noise on each head from backward passes: an estimate, not a bound.

Labels y are drawn from the model's own prediction π. With g the derivative of log π(y), summed over
all predictions, the KL divergence between the predictions before and after a small disturbance δ is
½ E (g·δ)² to second order: labels are independent and derivatives of log π(y) have mean zero, so
that the terms of different predictions do not mix. Independent noise of variance s² in each
coordinate thus costs (s²/2) E ‖g‖².
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from taut.audit.consequence.head_consequence import HeadConsequence
from taut.audit.consequence.noise import KINDS, NOISE
from taut.audit.consequence.prediction import drawn_score, prediction
from taut.models import AttentionGradient, attention_gradients, call_model, unchanged

if TYPE_CHECKING:
    from taut.audit.record import Record

Array = np.ndarray[Any, np.dtype[Any]]
Place = tuple[str, int]
DRAWS = 4  # backward passes for each sample
_MIXED = "the samples of the batch could not be told apart in it"
_ABSENT = "it was not seen in the pass with gradients"


def add_consequence(
    record: Record, model: nn.Module, inputs: Any, numbers: Array, count: int, seed: int
) -> None:
    """Add the consequences of a batch to the layers of its record.

    Samples whose number is below ``count`` are used. A layer that was not seen gets the reason.
    """
    found: dict[Place, HeadConsequence] = {}
    unseen: dict[str, str] = {}
    for part, chosen in one_by_one(inputs, numbers):
        if (chosen < count).any():
            unseen |= _add_part(found, model, part, chosen, count, seed)
    for layer in record.layers:
        mine = found.get((layer.path, layer.call))
        if mine is None:
            mine = HeadConsequence(layer.state.heads, unseen.get(layer.path, _ABSENT))
        elif mine.heads != layer.state.heads:
            told = f"it has {mine.heads} heads with gradients, and {layer.state.heads} without"
            mine = HeadConsequence(layer.state.heads, told)
        layer.consequence = mine


def one_by_one(inputs: Any, numbers: Array) -> Iterator[tuple[Any, Array]]:
    """The samples of a batch, each as a batch of its own, which needs less memory.

    A batch whose tensors do not all begin with the samples stays whole.
    """
    size = len(numbers)
    tensors = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    plain = all(isinstance(t, torch.Tensor) and t.ndim and len(t) == size for t in tensors)
    if size == 1 or not plain or any(t.ndim > 1 and t.shape[1] == size for t in tensors):
        yield inputs, numbers
        return
    for index in range(size):
        one = slice(index, index + 1)
        if isinstance(inputs, torch.Tensor):
            yield inputs[one], numbers[one]
        elif isinstance(inputs, Mapping):
            yield {name: value[one] for name, value in inputs.items()}, numbers[one]
        else:
            yield tuple(value[one] for value in inputs), numbers[one]


def _add_part(
    found: dict[Place, HeadConsequence],
    model: nn.Module,
    inputs: Any,
    numbers: Array,
    count: int,
    seed: int,
) -> dict[str, str]:
    """Add some samples; return the modules whose attention was not seen whole, and why."""
    totals: dict[Place, Array] = {}
    reasons: dict[Place, str] = {}
    with unchanged(model):
        with attention_gradients(model) as mode:
            output = call_model(model, inputs)
            seen = prediction(output, inputs, len(numbers))
        for draw in range(DRAWS):
            score = drawn_score(seen, seed, numbers, draw)
            for each in mode.backward(seen.logits, score):
                place = (each.path, each.call)
                mixed = each.scores is not None and len(each.scores) % len(numbers) > 0
                reasons[place] = _MIXED if mixed else each.reason
                if each.scores is not None and not mixed:
                    totals[place] = totals.get(place, 0.0) + _kl(each, len(numbers)) / DRAWS
    for place, kl in totals.items():
        mine = found.setdefault(place, HeadConsequence(kl.shape[2], reasons[place]))
        for index in np.flatnonzero(numbers < count):
            mine.add(kl[index], int(seen.tokens[index]))
    unreached = {path: reason for (path, _), reason in reasons.items() if reason}
    return mode.unseen | unreached


def _kl(each: AttentionGradient, samples: int) -> Array:
    """Half of variance times squared derivatives, (samples, kinds, heads); NaN if unknown.

    What overflowed is infinite.
    """
    assert each.scores is not None
    size = {
        "scores": (each.scores, torch.ones_like(each.scores)),
        "keys": (each.keys, each.key_power),
        "values": (each.values, each.value_power),
    }
    parts = []
    for kind in KINDS:
        squared, power = size[kind]
        if squared is None or power is None:
            parts.append(torch.full_like(each.scores, torch.nan))
        else:
            found = 0.5 * NOISE[kind] ** 2 * power * squared
            parts.append(found.nan_to_num(nan=torch.inf))
    whole = torch.stack(parts, dim=1).cpu().numpy()
    joined: Array = whole.reshape(samples, -1, *whole.shape[1:]).sum(axis=1)
    return joined
