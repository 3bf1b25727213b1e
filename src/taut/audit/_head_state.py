"""What is kept of every head of a layer: counts, maxima and histograms, whatever the data's size.

All of it can be merged: counts and histograms add, maxima are the larger, with the smaller place
where they are equal, so that the order of the data does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BINS = 200
LIMIT = 0.5  # no constant of softmax exceeds it
NEAR = 0.9  # share of the limit from which on a row counts as near it
Array = np.ndarray[Any, np.dtype[Any]]

COUNTS = ("rows", "hidden", "broken", "near")  # of rows: measured, seeing nothing, NaN, near ½
SUMS = ("two", "one", "entropy", "evenness", "top", "first")
MAXIMA = ("two", "one", "range", "score")
HISTOGRAMS = ("two", "top", "evenness")  # each of them in [0, 1] after scaling


class HeadState:
    """Statistics of the heads of one layer."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.counts = {name: np.zeros(heads, dtype=np.int64) for name in COUNTS}
        self.sums = {name: np.zeros(heads) for name in SUMS}
        self.maxima = {name: np.full(heads, -np.inf) for name in MAXIMA}
        # Where each maximum was: sample, query.
        self.places = {name: np.full((heads, 2), -1, dtype=np.int64) for name in MAXIMA}
        self.histograms = {name: np.zeros((heads, BINS), dtype=np.int64) for name in HISTOGRAMS}

    def add(self, values: dict[str, Array], samples: Array, kept: Array, broken: Array) -> None:
        """Take in rows: ``values`` are (samples, heads, queries), ``kept`` says which count."""
        for h in range(self.heads):
            keep = kept[:, h]
            self.counts["rows"][h] += int(keep.sum())
            self.counts["broken"][h] += int(broken[:, h].sum())
            self.counts["hidden"][h] += int((~keep & ~broken[:, h]).sum())
            if not keep.any():
                continue
            picked = {name: value[:, h][keep] for name, value in values.items()}
            self.counts["near"][h] += int((picked["two"] >= NEAR * LIMIT).sum())
            for name in SUMS:
                self.sums[name][h] += float(picked[name].sum(dtype=np.float64))
            sample, query = np.nonzero(keep)
            for name in MAXIMA:
                self._raise(name, h, picked[name], samples[sample], query)
            scaled = {"two": picked["two"] / LIMIT, "top": picked["top"]}
            scaled["evenness"] = picked["evenness"]
            for name in HISTOGRAMS:
                cells = np.minimum((scaled[name] * BINS).astype(np.int64), BINS - 1)
                self.histograms[name][h] += np.bincount(cells, minlength=BINS)[:BINS]

    def _raise(self, name: str, h: int, values: Array, samples: Array, queries: Array) -> None:
        best = values.max()
        if best < self.maxima[name][h]:
            return
        at = np.flatnonzero(values == best)
        first = at[np.lexsort((queries[at], samples[at]))[0]]
        place = (int(samples[first]), int(queries[first]))
        if best > self.maxima[name][h] or place < tuple(self.places[name][h]):
            self.maxima[name][h] = best
            self.places[name][h] = place

    def merge(self, other: HeadState) -> None:
        """Take in what another process has seen."""
        if other.heads != self.heads:
            raise ValueError(f"cannot merge {other.heads} heads into {self.heads}")
        for name in COUNTS:
            self.counts[name] += other.counts[name]
        for name in SUMS:
            self.sums[name] += other.sums[name]
        for name in HISTOGRAMS:
            self.histograms[name] += other.histograms[name]
        for name in MAXIMA:
            for h in range(self.heads):
                mine = (-self.maxima[name][h], *self.places[name][h])
                theirs = (-other.maxima[name][h], *other.places[name][h])
                if theirs < mine:
                    self.maxima[name][h] = other.maxima[name][h]
                    self.places[name][h] = other.places[name][h]

    def quantile(self, name: str, share: float) -> Array:
        """A quantile of each head from its histogram, as the upper end of its bin."""
        counts = np.cumsum(self.histograms[name], axis=1)
        wanted = np.ceil(share * counts[:, -1:]).clip(1)
        cell = np.argmax(counts >= wanted, axis=1)
        return np.where(counts[:, -1] > 0, (cell + 1) / BINS, np.nan)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; a maximum of nothing is null."""
        return {
            "heads": self.heads,
            "counts": {name: value.tolist() for name, value in self.counts.items()},
            "sums": {name: value.tolist() for name, value in self.sums.items()},
            "maxima": {
                name: [v if np.isfinite(v) else None for v in value.tolist()]
                for name, value in self.maxima.items()
            },
            "places": {name: value.tolist() for name, value in self.places.items()},
            "histograms": {name: value.tolist() for name, value in self.histograms.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HeadState:
        """The state that :meth:`to_dict` wrote."""
        state = cls(int(data["heads"]))
        for name in COUNTS:
            state.counts[name] = np.asarray(data["counts"][name], dtype=np.int64)
        for name in SUMS:
            state.sums[name] = np.asarray(data["sums"][name], dtype=np.float64)
        for name in MAXIMA:
            found = [-np.inf if v is None else v for v in data["maxima"][name]]
            state.maxima[name] = np.asarray(found, dtype=np.float64)
            state.places[name] = np.asarray(data["places"][name], dtype=np.int64).reshape(-1, 2)
        for name in HISTOGRAMS:
            state.histograms[name] = np.asarray(data["histograms"][name], dtype=np.int64)
        return state
