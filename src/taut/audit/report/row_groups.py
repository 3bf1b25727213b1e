"""Constants by number of keys and by position, for a head or for a whole model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from taut.audit.few_keys import FEW_KEYS
from taut.audit.report.svg_small import GroupMean
from taut.audit.statistics.head_state import HeadState
from taut.audit.statistics.profile import GROUPS, group_name

if TYPE_CHECKING:
    from taut.audit.layer_record import LayerRecord
    from taut.audit.record import Record

APART = FEW_KEYS.bit_length() - 1  # the last group of number of keys that is kept apart


def groups_of_head(layer: LayerRecord, head: int, name: str) -> list[GroupMean]:
    """The groups of one head: by ``"keys"``, with rows of few keys; or by ``"queries"``."""
    states = (layer.many, layer.few) if name == "keys" else (layer.state,)
    return _groups([(state, slice(head, head + 1)) for state in states], name)


def groups_of_model(record: Record, name: str) -> list[GroupMean]:
    """The groups of all heads together."""
    states = [
        state
        for layer in record.layers
        for state in ((layer.many, layer.few) if name == "keys" else (layer.state,))
    ]
    return _groups([(state, slice(None)) for state in states], name)


def _groups(chosen: Sequence[tuple[HeadState, slice]], name: str) -> list[GroupMean]:
    counts, sums = np.zeros(GROUPS, dtype=np.int64), np.zeros(GROUPS)
    for state, heads in chosen:
        profile = state.profiles[name]
        counts += profile.counts[heads].sum(axis=0)
        sums += profile.sums[heads].sum(axis=0)
    return [
        GroupMean(
            group_name(g),
            f"{(1 << g) >> 1}{'+' if g > 1 else ''}",
            float(sums[g] / counts[g]),
            int(counts[g]),
            name == "keys" and g <= APART,
        )
        for g in np.flatnonzero(counts).tolist()
    ]
