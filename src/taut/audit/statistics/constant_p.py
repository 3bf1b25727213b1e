"""An upper bound of the constant of every row in other norms l_p."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic
from taut.models import LIMIT, constant_key

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState


class ConstantP(Statistic):
    """Mean and largest of the upper bounds, for each exponent besides 1, 2 and ∞."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """The bound of a row, theorem local-p-bracket."""
        for p in norms:
            yield RowNumber(constant_key(p), "upper", mean=True, largest=True, end=LIMIT)

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """Upper bounds."""
        for p in state.norms:
            key, norm = constant_key(p), f"l{p:g}"
            for name, values in (("mean", state.mean(key)), ("largest", state.maxima[key])):
                meaning = f"{name} of the upper bounds of the rows' constants in {norm}"
                yield (
                    Column(
                        f"{name}_{p:g}_upper", "upper", f"{name} in {norm}", meaning, norm,
                        "local-p-bracket",
                    ),
                    values,
                )  # fmt: skip
