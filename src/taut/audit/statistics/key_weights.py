"""The largest weight of every row, and the weight of the first key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState


class KeyWeights(Statistic):
    """Mean largest weight, and mean weight of the first key."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """Two weights of a row."""
        yield RowNumber("top", "exact", mean=True, end=1.0)
        yield RowNumber("first", "exact", mean=True)

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """Means over the rows that were seen."""
        meaning = "mean of the largest weight of a row: 1 means one key only"
        yield Column("top", "exact", "largest weight", meaning), state.mean("top")
        meaning = "mean weight of the first key: large for an attention sink"
        yield Column("first", "exact", "weight of first key", meaning), state.mean("first")
