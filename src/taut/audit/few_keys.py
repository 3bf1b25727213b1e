"""Rows that see few keys, which are kept apart from the others.

A row of two keys has the constant ½ as soon as both weigh the same, and the first rows of causal
attention are like that in every head: among the others they would hide what a head does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array
from taut.models import RowMeasurements

if TYPE_CHECKING:
    from taut.audit.layer_record import LayerRecord

FEW_KEYS = 8  # rows with fewer visible keys are kept apart

_KNOWN: Any = {"norm": "l2", "theorem": "local-2"}
COLUMNS = (
    Column(
        "few", "exact", "rows of few keys",
        f"rows with fewer than {FEW_KEYS} visible keys, which other columns leave out", form="d",
    ),
    Column(
        "mean_few", "exact", "mean, few keys",
        f"mean l2 constant of the rows with fewer than {FEW_KEYS} keys", **_KNOWN, quick="upper",
    ),
    Column(
        "largest_few", "exact", "largest, few keys",
        f"largest l2 constant of the rows with fewer than {FEW_KEYS} keys", **_KNOWN,
        drawn="lower", quick="upper",
    ),
)  # fmt: skip


def see_few(measured: RowMeasurements) -> Array:
    """Which of the rows that count see few keys."""
    few: Array = measured.kept & (measured.values["seen"] < FEW_KEYS)
    return few


def few_keys_columns(layer: LayerRecord) -> list[tuple[Column, Array]]:
    """The columns of the rows that are kept apart; zeros if there are none, or no others."""
    rows = layer.few.counts["rows"] * (layer.state is layer.many)
    there = rows > 0
    mean = np.where(there, layer.few.mean("two"), 0.0)
    largest = np.where(there, layer.few.maxima["two"], 0.0)
    return list(zip(COLUMNS, (rows, mean, largest), strict=True))
