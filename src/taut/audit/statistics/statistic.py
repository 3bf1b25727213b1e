"""Statistic: what an audit keeps of the rows of a head, and the columns it makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from taut.audit.statistics.column import Column, Kind
from taut.models import ScoreBlock

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState

Array = np.ndarray[Any, np.dtype[Any]]


class RowNumber(NamedTuple):
    """A number of every row, and what is kept of it for each head.

    What is kept can be merged: sums and histograms add, and of two maxima the larger stays.

    Attributes
    ----------
    key
        Its name in the record.
    kind
        Whether it is ``"exact"`` or an ``"upper"`` bound.
    mean
        Keep the sum.
    largest
        Keep the maximum, with the sample and query of the row.
    end
        Keep a histogram from 0 to here; None for none.
    measure
        How it is found from a block of scores, (..., keys): one number for each row. None if
        :func:`taut.models.measure_rows` finds it together with others.
    """

    key: str
    kind: Kind
    mean: bool = False
    largest: bool = False
    end: float | None = None
    measure: Callable[[ScoreBlock], torch.Tensor] | None = None


class Statistic(ABC):
    """One file of this package each; ``STATISTICS`` lists them."""

    @abstractmethod
    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """What is kept of every row; ``norms`` are the exponents besides 1, 2 and ∞."""

    @abstractmethod
    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """The columns of the table, each with one number for every head."""
