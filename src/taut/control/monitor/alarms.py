"""When to warn: entropy that collapses, scores that grow, scores that are NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from taut.control.monitor.layer_measurement import Array, LayerMeasurement, over_heads

# A tenth of the entropy that a layer began with. Single heads do become that sharp in healthy
# models (those that attend to the previous token), the mean of a layer's heads does not.
FALL = 0.1
# Nats. The largest weight is then about 0.998, and less than half a per cent of the gradient passes
# the softmax: such a head has all but stopped learning.
FLOOR = 0.01
# Times the largest score that a head began with.
GROWTH = 4.0
# From here on numbers of bfloat16 are ½ apart: rounding a score moves its weight by up to 28 %.
CEILING = 64.0


class AttentionWarning(UserWarning):
    """Attention goes wrong in training, or cannot be measured."""


class Alarms:
    """Compares layers with their first measurement; each kind of alarm is raised once a layer."""

    def __init__(self) -> None:
        self._first: dict[str, LayerMeasurement] = {}
        self._told: set[tuple[str, str]] = set()

    def check(self, layers: Sequence[LayerMeasurement], step: int) -> list[str]:
        """The alarms of this step that were not raised before."""
        said = []
        for layer in layers:
            first = self._first.setdefault(layer.name, layer)
            if first.largest_score.shape != layer.largest_score.shape:
                first = self._first[layer.name] = layer
            for kind, text in _wrong(first, layer):
                if self.once(layer.name, kind):
                    said.append(f"{layer.name}, step {step}: {text}")
        return said

    def once(self, layer: str, kind: str) -> bool:
        """Whether this is raised for the first time."""
        new = (layer, kind) not in self._told
        self._told.add((layer, kind))
        return new


def _wrong(first: LayerMeasurement, now: LayerMeasurement) -> Iterator[tuple[str, str]]:
    fell = (now.mean_entropy < FLOOR) & (first.mean_entropy >= FLOOR)
    before, after = (over_heads(each.mean_entropy, np.mean) for each in (first, now))
    if after < FALL * before or fell.any():
        heads = _heads(fell) if fell.any() else "all heads together"
        yield (
            "entropy",
            f"attention entropy collapses: {after:.3g} nats in the mean, {before:.3g} at first "
            f"({heads}); a lower learning rate, warm-up, SoftCap or LocalConstant help",
        )
    grew = (now.largest_score > CEILING) & (now.largest_score > GROWTH * first.largest_score)
    if grew.any():
        yield (
            "growth",
            f"attention logits grow: up to {now.largest_score[grew].max():.3g}, "
            f"{first.largest_score[grew].max():.3g} at first ({_heads(grew)}); a lower learning "
            "rate, weight decay, QKClip or SoftCap help",
        )
    if now.broken:
        yield "broken", f"{now.broken} rows of attention scores hold NaN or +inf"


def _heads(which: Array) -> str:
    numbers = np.flatnonzero(which).tolist()
    text = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"head {text}" if len(numbers) == 1 else f"heads {text}"
