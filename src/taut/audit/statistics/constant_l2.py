"""The exact l2 constant of every row: the spectral norm of softmax's Jacobian."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic
from taut.models import LIMIT

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState

NEAR = 0.9  # share of the limit from which on a row counts as near it


class ConstantL2(Statistic):
    """Mean, quantiles and largest of the l2 constants, and how many rows are near the limit."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """The constant of a row, theorem local-2."""
        yield RowNumber("two", "exact", mean=True, largest=True, end=LIMIT)

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """Quantiles are upper bounds; all else is exact for the rows that were seen."""
        known: Any = {"norm": "l2", "theorem": "local-2", "quick": "upper"}
        yield (
            Column("mean", "exact", "mean", "mean l2 constant of the rows seen", **known),
            state.mean("two"),
        )
        yield (
            Column(
                "largest", "exact", "largest", "largest l2 constant of the rows seen", **known,
                drawn="lower",
            ),
            state.maxima["two"],
        )  # fmt: skip
        for name, words, share in (("q05", "5 % of rows ≤", 0.05), ("median", "median ≤", 0.5),
                                   ("q95", "95 % of rows ≤", 0.95)):  # fmt: skip
            meaning = (
                f"{share:.0%} of the rows have at most this l2 constant: the end of a bin of a "
                "histogram, at most 0.0025 above the quantile"
            )
            yield (
                Column(f"{name}_upper", "upper", words, meaning, **known),
                state.quantile("two", share),
            )
        bins = state.histograms["two"]
        near = bins[:, round(NEAR * bins.shape[1]) :].sum(axis=1)
        rows = np.maximum(state.counts["rows"], 1)
        meaning = f"share of rows whose l2 constant is at least {NEAR:g} of the limit 1/2"
        yield Column("near", "exact", "rows near ½", meaning, form=".1%", **known), near / rows
        meaning = "share of rows whose l2 constant is at least the threshold"
        column = Column("above", "exact", "rows above the threshold", meaning, form=".1%", **known)
        yield column, state.counts["above"] / rows
        place = state.places["two"]
        meaning = "sample of the row with the largest l2 constant, from 0; -1 if it is not known"
        yield Column("sample", "", "sample", meaning, form="d"), place[:, 0]
        meaning = "query of the row with the largest l2 constant, from 0; -1 if it is not known"
        yield Column("query", "", "query", meaning, form="d"), place[:, 1]
