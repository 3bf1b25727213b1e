"""How far apart the scores of a row lie, and the largest score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState


class ScoreRange(Statistic):
    """Largest range of scores of a row, and the largest score."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """Largest minus smallest score of a row, and the largest."""
        yield RowNumber("range", "exact", largest=True)
        yield RowNumber("score", "exact", largest=True)

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """The largest of the rows that were seen."""
        meaning = "largest difference of two scores in a row that was seen"
        column = Column("range", "exact", "range of scores", meaning, form=".5g", drawn="lower")
        yield column, state.maxima["range"]
