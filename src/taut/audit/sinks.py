"""Attention sinks: keys that most of the rows of a sample put much of their weight on.

A key leads a row if it has the row's largest weight. In one sample and head, the sink is the key
for which these largest weights, averaged over all rows, come to at least 0.3. That mean is a lower
bound of the key's mean weight; Gu et al. (2025) call a first token a sink if its mean weight is
above 0.3. Rows that see few keys do not count: the first rows of causal attention have no choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from taut.audit.few_keys import see_few
from taut.audit.record_checks import count, integers, part
from taut.audit.statistics.column import WORDS, Column
from taut.audit.statistics.statistic import Array
from taut.models import AttentionRows, RowMeasurements

SINK = 0.3  # mean weight from which on a key is a sink
TokenText = Callable[[int, int], str]  # by the place of a sample in its batch, and a position
COLUMNS = (
    Column(
        "sink", "exact", "samples with a sink",
        f"share of the samples in which one key has at least {SINK:g} of the weight of all rows, "
        "counting rows whose largest weight is on it",
    ),
    Column("sink_key", "", "sink", "the key that is a sink in most of them", form=WORDS),
)  # fmt: skip


class Sinks:
    """Which keys are sinks, for the heads of one layer.

    Attributes
    ----------
    samples
        Samples with rows that count, for each head.
    keys
        In how many samples a key is the sink, by its name, for each head.
    """

    def __init__(self, heads: int) -> None:
        self.samples: Array = np.zeros(heads, dtype=np.int64)
        self.keys: list[Counter[str]] = [Counter() for _ in range(heads)]

    def add(self, measured: RowMeasurements, rows: AttentionRows, token: TokenText | None) -> None:
        """Add the rows of a batch; ``token`` gives the text of keys by sample and position.

        Keys are told by their position in the input, as blocks of a model number them anew; those
        that are not in it, such as learned ones, by their number.
        """
        if not measured.values:
            return
        counts = measured.kept & ~see_few(measured)
        number = counts.sum(axis=2)
        self.samples += (number > 0).sum(axis=0)
        leader = measured.values["leader"].astype(np.int64)
        places = rows.places_of(leader)
        known = int(places.max(initial=-1)) + 1
        leader = np.where(places >= 0, places, known + leader)
        most = known + rows.reader.keys
        group = np.arange(number.size).reshape(*number.shape, 1) * most
        top = measured.values["top"][counts]
        led = np.bincount((group + leader)[counts], top, minlength=number.size * most)
        led = led.reshape(*number.shape, most)
        best, weight = led.argmax(axis=2), led.max(axis=2)
        for sample, head in np.argwhere((number > 0) & (weight >= SINK * number)).tolist():
            key = int(best[sample, head])
            if token is None or key >= known:
                name = f"key {key if key < known else key - known}"
            else:
                name = token(int(rows.samples[sample]), key)
            self.keys[head][name] += 1

    def merge(self, other: Sinks) -> None:
        """Add what another process has seen."""
        self.samples = self.samples + other.samples
        for mine, theirs in zip(self.keys, other.keys, strict=True):
            mine.update(theirs)

    @property
    def share(self) -> Array:
        """The share of samples with a sink, for each head."""
        found: Array = np.array([sum(each.values()) for each in self.keys])
        return found / np.maximum(self.samples, 1)

    @property
    def usual(self) -> list[str]:
        """The key that is a sink most often, for each head: of several the first by name."""
        return [min(each, key=lambda key: (-each[key], key), default="") for each in self.keys]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {"samples": self.samples.tolist(), "keys": [dict(each) for each in self.keys]}

    @classmethod
    def from_dict(cls, data: Any, heads: int) -> Sinks:
        """What :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        found, what = cls(heads), "the sinks of a layer"
        found.samples = integers(
            part(data, "samples", list, what), (heads,), f"'samples' of {what}"
        )
        given = part(data, "keys", list, what)
        if len(given) != heads:
            raise ValueError(f"'keys' of {what} are not of {heads} heads")
        for head, each in enumerate(given):
            if not isinstance(each, dict):
                raise ValueError(f"'keys' of {what} must be objects")
            found.keys[head] = Counter({key: count(each, key, what, least=1) for key in each})
        if (found.share > 1).any():
            raise ValueError(f"{what} are in more samples than there are")
        return found
