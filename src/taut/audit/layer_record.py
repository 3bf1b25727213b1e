"""LayerRecord: what an audit found about one softmax of attention."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from taut.audit.consequence.head_consequence import HeadConsequence
from taut.audit.few_keys import see_few
from taut.audit.record_checks import count, pair, part
from taut.audit.sinks import Sinks
from taut.audit.statistics.empirical_grid import Grid
from taut.audit.statistics.head_state import NOT_MEASURED, HeadState, ReadRow
from taut.audit.statistics.head_state_json import state_from_dict, state_to_dict
from taut.audit.statistics.statistic import Array
from taut.models import RowMeasurements


@dataclass
class LayerRecord:
    """One softmax of attention in a model: the module that runs it, and its heads.

    Attributes
    ----------
    path
        Name of the module.
    call
        Which softmax of the module in one forward pass, from 1 on.
    many, few
        Statistics of its heads: of the rows that see at least 8 keys, and of those that see fewer.
        ``state`` is the first, or the second where there are no other rows.
    grid
        Empirical constants of Nair (2025), measured on a sample of the rows; or None.
    sinks
        Which keys most rows put much of their weight on.
    consequence
        What disturbing its heads would change, where it was estimated; or None.
    since
        The first sample of the first batch that reached it, and its place in that batch. Layers
        are ordered by it, in whatever order batches come.
    fused
        Whether a fused kernel ran it, so that its scores were computed beside it in blocks; else
        the model wrote its scores out.
    """

    path: str
    call: int
    many: HeadState
    grid: Grid | None = None
    since: tuple[int, int] = (0, 0)
    fused: bool = False
    consequence: HeadConsequence | None = None
    few: HeadState = None  # type: ignore[assignment]  # made from the other, if it is not given
    sinks: Sinks = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.few is None:
            self.few = self.many.empty()
        if self.sinks is None:
            self.sinks = Sinks(self.many.heads)

    @property
    def state(self) -> HeadState:
        """Statistics of the rows that are shown."""
        only_few = self.few.counts["rows"].any() and not self.many.counts["rows"].any()
        return self.few if only_few else self.many

    def add(
        self, measured: RowMeasurements, samples: Array, queries: Array, read: ReadRow | None = None
    ) -> None:
        """Add rows, each to those that see as many keys; see :meth:`HeadState.add`."""
        few = see_few(measured) if measured.values else measured.kept
        self.many.add(measured, samples, queries, few, read)
        self.few.add(measured, samples, queries, measured.kept & ~few, read)

    @property
    def name(self) -> str:
        """The module, and which of its softmaxes if it has several."""
        return self.path if self.call == 1 else f"{self.path} ({self.call})"

    def empty(self) -> LayerRecord:
        """A record of the same layer in which nothing was seen yet."""
        state = self.many.empty()
        return LayerRecord(self.path, self.call, state, since=self.since, fused=self.fused)

    def fits(self, other: LayerRecord) -> None:
        """Raise an error if another record cannot be merged."""
        self.many.fits(other.many)
        if self.grid is not None and other.grid is not None:
            self.grid.fits(other.grid)
        if self.consequence is not None and other.consequence is not None:
            self.consequence.fits(other.consequence)

    def merge(self, other: LayerRecord) -> None:
        """Merge what another process has seen of this layer."""
        self.many.merge(other.many)
        self.few.merge(other.few)
        self.sinks.merge(other.sinks)
        if self.grid is None:
            self.grid = copy.deepcopy(other.grid)
        elif other.grid is not None:
            self.grid.merge(other.grid)
        if self.consequence is None:
            self.consequence = copy.deepcopy(other.consequence)
        elif other.consequence is not None:
            self.consequence.merge(other.consequence)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {
            "path": self.path,
            "call": self.call,
            "since": list(self.since),
            "fused": self.fused,
            **state_to_dict(self.many),
            "few": state_to_dict(self.few) if self.few.counts["rows"].any() else None,
            "sinks": self.sinks.to_dict(),
            "grid": None if self.grid is None else self.grid.to_dict(),
            "consequence": None if self.consequence is None else self.consequence.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LayerRecord:
        """The layer that :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        path, call = part(data, "path", str, "a layer"), count(data, "call", "a layer", least=1)
        grid = None if data.get("grid") is None else Grid.from_dict(data["grid"])
        since = pair(data, "since", "a layer")
        fused = part(data, "fused", bool, "a layer")
        many, given = state_from_dict(data), data.get("consequence")
        found = None if given is None else HeadConsequence.from_dict(given, many.heads)
        few = many.empty() if data.get("few") is None else state_from_dict(data["few"])
        few.fits(many)
        few.counts |= {name: many.counts[name].copy() for name in NOT_MEASURED}
        few.affinity = many.affinity.copy()
        sinks = Sinks.from_dict(data.get("sinks"), many.heads)
        return cls(path, call, many, grid, since, fused, found, few, sinks)
