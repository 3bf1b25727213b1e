"""What is kept of every head of a layer: counts, maxima and histograms, whatever the data's size.

All of it can be merged: counts and histograms add, maxima are the larger, with the smaller place
where they are equal, so that the order of the data does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from taut.audit._parse import count, integers, numbers, part

BINS = 200
LIMIT = 0.5  # no constant of softmax exceeds it
NEAR = 0.9  # share of the limit from which on a row counts as near it
Array = np.ndarray[Any, np.dtype[Any]]

# Of rows: measured, seeing nothing, NaN, at or above the threshold.
COUNTS = ("rows", "hidden", "broken", "above")
SUMS = ("two", "one", "entropy", "evenness", "top", "first")
MAXIMA = ("two", "one", "range", "score")
HISTOGRAMS = {"two": LIMIT, "one": LIMIT, "top": 1.0, "evenness": 1.0}  # with their largest values


def series(p: float) -> str:
    """The name under which constants in l_p are kept: exact ones for 1, 2 and ∞, else bounds."""
    return {1.0: "one", 2.0: "two", math.inf: "one"}.get(p, f"l{p:g}")


class HeadState:
    """Statistics of the heads of one layer.

    Parameters
    ----------
    heads
        How many.
    norms
        Exponents besides 1, 2 and ∞ whose upper bounds are kept too.
    threshold
        Rows whose constant in l2 is at least this are counted.
    """

    def __init__(
        self, heads: int, norms: Sequence[float] = (), threshold: float = NEAR * LIMIT
    ) -> None:
        self.heads, self.threshold = heads, threshold
        self.norms = tuple(p for p in norms if series(p) not in SUMS)
        more = tuple(series(p) for p in self.norms)
        tops = {**HISTOGRAMS, **dict.fromkeys(more, LIMIT)}
        self.tops = tops
        self.counts: dict[str, Array] = {n: np.zeros(heads, dtype=np.int64) for n in COUNTS}
        self.sums: dict[str, Array] = {name: np.zeros(heads) for name in SUMS + more}
        self.maxima = {name: np.full(heads, -np.inf) for name in MAXIMA + more}
        # Where each maximum was: sample, query.
        self.places = {name: np.full((heads, 2), -1, dtype=np.int64) for name in self.maxima}
        self.histograms: dict[str, Array] = {
            name: np.zeros((heads, BINS), dtype=np.int64) for name in tops
        }
        # The largest affinity bound; infinite where the keys were not known.
        self.affinity = np.zeros(heads)

    def add(
        self, values: dict[str, Array], samples: Array, queries: Array, kept: Array, broken: Array
    ) -> None:
        """Take in rows: ``values`` are (samples, heads, queries), ``kept`` says which count.

        ``samples``, and ``queries`` as (samples, heads, queries), say where rows are.
        """
        self.counts["rows"] += kept.sum(axis=(0, 2))
        self.counts["broken"] += broken.sum(axis=(0, 2))
        self.counts["hidden"] += (~kept & ~broken).sum(axis=(0, 2))
        if not kept.any():
            return
        self.counts["above"] += (kept & (values["two"] >= self.threshold)).sum(axis=(0, 2))
        for name in self.sums:
            there = np.where(kept, values[name], 0.0)
            self.sums[name] += there.sum(axis=(0, 2), dtype=np.float64)
        _, head, _ = np.nonzero(kept)
        for name, end in self.tops.items():
            picked = values[name][kept]
            cells = np.minimum((picked * (BINS / end)).astype(np.int64), BINS - 1)
            counts = np.bincount(head * BINS + cells, minlength=self.heads * BINS)
            self.histograms[name] += counts.reshape(self.heads, BINS)
        for name in self.maxima:
            lowered = np.where(kept, values[name], -np.inf).max(axis=(0, 2))
            for h in np.flatnonzero(lowered >= self.maxima[name]):
                at = (values[name][:, h] == lowered[h]) & kept[:, h]
                rows, places = np.nonzero(at)
                self._raise(name, int(h), lowered[h], samples[rows], queries[rows, h, places])

    def _raise(self, name: str, h: int, best: float, samples: Array, queries: Array) -> None:
        """Take in a maximum and where it was; the first place where there are several."""
        if not len(samples):
            return
        first = np.lexsort((queries, samples))[0]
        place = (int(samples[first]), int(queries[first]))
        if best > self.maxima[name][h] or place < tuple(self.places[name][h]):
            self.maxima[name][h] = best
            self.places[name][h] = place

    def fits(self, other: HeadState) -> None:
        """Raise an error if another state cannot be merged."""
        if other.heads != self.heads:
            raise ValueError(f"cannot merge {other.heads} heads into {self.heads}")
        if (other.norms, other.threshold) != (self.norms, self.threshold):
            raise ValueError("cannot merge records of other norms or another threshold")

    def merge(self, other: HeadState) -> None:
        """Take in what another process has seen."""
        self.fits(other)
        for mine, theirs in (
            (self.counts, other.counts),
            (self.sums, other.sums),
            (self.histograms, other.histograms),
        ):
            for name in mine:
                mine[name] += theirs[name]
        self.affinity = np.maximum(self.affinity, other.affinity)
        for name in self.maxima:
            for h in range(self.heads):
                here = (-self.maxima[name][h], *self.places[name][h])
                there = (-other.maxima[name][h], *other.places[name][h])
                if there < here:
                    self.maxima[name][h] = other.maxima[name][h]
                    self.places[name][h] = other.places[name][h]

    def quantile(self, name: str, share: float) -> Array:
        """A quantile of each head from its histogram, as the upper end of its bin."""
        counts = np.cumsum(self.histograms[name], axis=1)
        wanted = np.ceil(share * counts[:, -1:]).clip(1)
        cell = np.argmax(counts >= wanted, axis=1)
        return np.where(counts[:, -1] > 0, self.tops[name] * (cell + 1) / BINS, np.nan)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; a maximum of nothing is null, and so is NaN."""
        return {
            "heads": self.heads,
            "norms": list(self.norms),
            "threshold": self.threshold,
            "counts": _lists(self.counts),
            "sums": {name: finite(value) for name, value in self.sums.items()},
            "maxima": {name: finite(value) for name, value in self.maxima.items()},
            "places": _lists(self.places),
            "histograms": _lists(self.histograms),
            "affinity": finite(self.affinity),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HeadState:
        """The state that :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        what = "a layer"
        heads = count(data, "heads", what, least=1)
        rows = part(part(data, "counts", dict, what), "rows", list, "counts")
        norms = part(data, "norms", list, what)
        if len(rows) != heads or len(part(data, "histograms", dict, what)) > len(norms) + 4:
            raise ValueError(f"{what} says it has {heads} heads and holds those of {len(rows)}")
        if not all(type(p) in (int, float) and 1 <= p < math.inf for p in norms):
            raise ValueError("the norms of a layer must be numbers from 1 on")
        names = {series(p) for p in norms}
        if len(names) < len(norms) or names & set(SUMS) or not names <= set(data["histograms"]):
            raise ValueError("the norms of a layer are not those that it holds numbers of")
        threshold = float(numbers([data.get("threshold")], (1,), "threshold")[0])
        state = cls(heads, norms, threshold)  # as large as what the file holds
        _fill(state.counts, data, "counts", integers)
        _fill(state.histograms, data, "histograms", integers)
        _fill(state.places, data, "places", partial(integers, least=-1))
        _fill(state.sums, data, "sums", numbers)
        _fill(state.maxima, data, "maxima", partial(numbers, missing=-np.inf))
        state.affinity = numbers(data.get("affinity"), (heads,), "affinity", np.inf)
        state.consistent()
        return state

    def consistent(self) -> None:
        """Raise an error where numbers cannot be those of one audit."""
        for name, histogram in self.histograms.items():
            if (histogram.sum(axis=1) != self.counts["rows"]).any():
                raise ValueError(f"the histogram {name!r} does not count the rows that there are")
        if (self.counts["above"] > self.counts["rows"]).any():
            raise ValueError("more rows are above the threshold than there are")
        for name, end in self.tops.items():
            if name in self.maxima and (self.maxima[name] > end).any():
                raise ValueError(f"the largest {name!r} is above {end:g}, which nothing exceeds")
        seen = self.counts["rows"] > 0
        if any((value[seen] == -np.inf).any() for value in self.maxima.values()):
            raise ValueError("a head has rows, but no largest one among them")


def _fill(kept: dict[str, Array], data: dict[str, Any], name: str, read: Any) -> None:
    given = part(data, name, dict, "a layer")
    for key, old in kept.items():
        kept[key] = read(given.get(key), old.shape, f"{key!r} of {name!r}")


def _lists(arrays: dict[str, Array]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in arrays.items()}


def finite(values: Array) -> Any:
    """Lists of the numbers, with null for what is not finite: JSON has no word for it."""
    return np.where(np.isfinite(values), values, None).tolist()  # type: ignore[call-overload]
