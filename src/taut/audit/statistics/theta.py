"""θ of every row: the local constant from l∞ to l1, a bracket narrower than 1e-6 as a rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from taut._softmax import theta_sides
from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic
from taut.models import ScoreBlock

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState


class Theta(Statistic):
    """Mean of θ = 4 max P(S)(1 − P(S)) over sets S of keys (theorem inf-to-1), from both sides."""

    def __init__(self) -> None:
        self._last: tuple[ScoreBlock, torch.Tensor] | None = None

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """The lower and the upper side of a row."""
        yield RowNumber("theta", "lower", mean=True, end=1.0, measure=lambda b: self._sides(b)[0])
        yield RowNumber("theta_upper", "upper", mean=True, measure=lambda b: self._sides(b)[1])

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """Means over the rows that were seen."""
        norm, theorem = "linf->l1", "inf-to-1"
        for name, side in (("theta", "lower"), ("theta_upper", "upper")):
            meaning = f"mean of the {side} sides of the rows' constants from l∞ to l1"
            yield (
                Column(name, side, "θ", meaning, norm, theorem, form=".6f"),  # type: ignore[arg-type]
                state.mean(name),
            )

    def _sides(self, block: ScoreBlock) -> torch.Tensor:
        """Both sides of every row; they are asked for one after the other."""
        if self._last is None or self._last[0] is not block:
            weights = block.scores.double().softmax(dim=-1).cpu()
            rows = weights.reshape(-1, weights.shape[-1]).numpy()
            sides = torch.stack([torch.from_numpy(side) for side in theta_sides(rows)])
            self._last = block, sides.reshape(2, *weights.shape[:-1])
        return self._last[1]
