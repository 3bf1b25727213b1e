"""Entropy of the weights of every row, and its share of the largest entropy possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState


class Entropy(Statistic):
    """Mean entropy and mean evenness."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """Entropy in nats, and divided by the logarithm of the number of keys."""
        yield RowNumber("entropy", "exact", mean=True)
        yield RowNumber("evenness", "exact", mean=True, end=1.0)

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """Means over the rows that were seen."""
        meaning = "mean entropy of the weights, in nats"
        yield Column("entropy", "exact", "entropy", meaning), state.mean("entropy")
        meaning = "mean entropy as a share of its maximum: 1 means that all keys weigh the same"
        yield Column("evenness", "exact", "evenness", meaning), state.mean("evenness")
