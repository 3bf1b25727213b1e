"""The exact constant of every row in l1, which is that in l∞, as the Jacobian is symmetric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic
from taut.models import LIMIT

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState


class ConstantL1(Statistic):
    """Mean and largest of the constants in l1 and l∞."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """The constant of a row, theorem local-1-inf."""
        yield RowNumber("one", "exact", mean=True, largest=True, end=LIMIT)

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """Exact for the rows that were seen."""
        for name, values in (("mean", state.mean("one")), ("largest", state.maxima["one"])):
            meaning = f"{name} constant in l1 and linf of the rows seen"
            yield (
                Column(
                    f"{name}_1", "exact", f"{name} in l1, l∞", meaning, "l1, linf", "local-1-inf",
                    drawn="lower" if name == "largest" else "sample", quick="upper",
                ),
                values,
            )  # fmt: skip
