"""How many rows were measured, saw nothing, or could not be measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState


class RowCounts(Statistic):
    """Counts of rows. The state counts them itself, as they say which rows count."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """Nothing besides the counts."""
        return ()

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """Rows of each sort."""
        for name, words, meaning in (
            ("rows", "rows", "rows that were measured"),
            ("skipped", "rows not drawn", "rows that were left out because only some were drawn"),
            (
                "hidden",
                "rows that see nothing",
                "rows of padding, or with all keys masked",
            ),
            (
                "broken",
                "broken rows",
                "rows with NaN or infinite scores or with NaN in a measurement, which do not count",
            ),
        ):
            yield Column(name, "exact", words, meaning, form="d"), state.counts[name]
