"""What is kept of every head of a layer: counts, sums, maxima and histograms of its rows.

All of it can be merged: counts, sums and histograms add, and of two maxima the larger stays, with
the smaller place where they are equal. Sums are exact, so that the order of the data does not
matter, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from taut._base.settings import AuditSettings
from taut.audit.statistics import STATISTICS, optional
from taut.audit.statistics.exact_sum import exact_sum
from taut.audit.statistics.profile import Profile
from taut.audit.statistics.statistic import Array, RowNumber
from taut.audit.statistics.worst_row import WorstRow
from taut.models import RowMeasurements, constant_key

BINS = 200
# Rows that were measured, were not drawn, see nothing, hold NaN, or reach the threshold.
COUNTS = ("rows", "skipped", "hidden", "broken", "above")
NOT_MEASURED = ("skipped", "hidden", "broken")


# By sample, head and query, as arrays have them; None for a row that is not worth it.
ReadRow = Callable[[int, int, int], WorstRow | None]


def row_numbers(norms: Sequence[float], *, theta: bool = False) -> dict[str, RowNumber]:
    """The numbers of a row that all statistics keep, by their keys."""
    chosen = (*STATISTICS, *optional(theta=theta))
    return {number.key: number for each in chosen for number in each.numbers(norms)}


class HeadState:
    """Statistics of the heads of one layer.

    Parameters
    ----------
    heads
        Number of heads.
    norms
        Exponents; upper bounds are kept for those besides 1, 2 and ∞.
    threshold
        Rows whose l2 constant is at least this are counted.
    theta
        Keep the constants from l∞ to l1.
    """

    def __init__(
        self,
        heads: int,
        norms: Sequence[float] = (),
        threshold: float = AuditSettings.threshold,
        *,
        theta: bool = False,
    ) -> None:
        self.heads, self.threshold, self.theta = heads, threshold, theta
        self.norms = tuple(p for p in norms if constant_key(p) not in ("one", "two"))
        self.numbers = row_numbers(self.norms, theta=theta)
        kept = self.numbers.values()
        self.tops = {number.key: number.end for number in kept if number.end is not None}
        self.counts: dict[str, Array] = {n: np.zeros(heads, dtype=np.int64) for n in COUNTS}
        self.sums: dict[str, Array] = {n.key: np.zeros(heads) for n in kept if n.mean}
        self.rests: dict[str, list[Array]] = {key: [] for key in self.sums}  # see exact_sum
        self.maxima = {n.key: np.full(heads, -np.inf) for n in kept if n.largest}
        # Where each maximum was: sample, query.
        self.places = {key: np.full((heads, 2), -1, dtype=np.int64) for key in self.maxima}
        self.histograms: dict[str, Array] = {
            key: np.zeros((heads, BINS), dtype=np.int64) for key in self.tops
        }
        # The largest affinity bound; infinite where the keys were not known.
        self.affinity = np.zeros(heads)
        # Mean l2 constants by the number of keys and by the position of the query.
        self.profiles = {name: Profile(heads) for name in ("keys", "queries")}
        # The rows of the largest l2 constants, where they were read.
        self.worst: list[WorstRow | None] = [None] * heads

    def add(
        self,
        measured: RowMeasurements,
        samples: Array,
        queries: Array,
        apart: Array | None = None,
        read: ReadRow | None = None,
    ) -> None:
        """Add rows; ``samples``, and ``queries`` (samples, heads, queries), say where they are.

        Rows of which some number is NaN are broken too: they would hide the maxima of all others.
        Rows that are ``apart`` do not count here, and neither as hidden nor as broken. ``read``
        gives what is kept of the row with the largest l2 constant, by its place in the arrays.
        """
        values, kept, broken, skipped = measured
        self.counts["skipped"] += skipped.sum(axis=(0, 2))
        if not values:
            return
        unknown = kept & np.any([np.isnan(values[name]) for name in self.numbers], axis=0)
        kept, broken = kept & ~unknown, broken | unknown
        if apart is not None:
            kept, skipped = kept & ~apart, skipped | (apart & ~unknown)
        self.counts["rows"] += kept.sum(axis=(0, 2))
        self.counts["broken"] += broken.sum(axis=(0, 2))
        self.counts["hidden"] += (~kept & ~broken & ~skipped).sum(axis=(0, 2))
        if not kept.any():
            return
        self.counts["above"] += (kept & (values["two"] >= self.threshold)).sum(axis=(0, 2))
        for name in self.sums:
            there = np.where(kept, values[name], 0.0)
            self._plus(name, there.sum(axis=(0, 2), dtype=np.float64))
        _, head, _ = np.nonzero(kept)
        for name, end in self.tops.items():
            picked = values[name][kept]
            cells = np.minimum((picked * (BINS / end)).astype(np.int64), BINS - 1)
            counts = np.bincount(head * BINS + cells, minlength=self.heads * BINS)
            self.histograms[name] += counts.reshape(self.heads, BINS)
        # The first query is 1, so that causal attention has the same groups of both.
        for name, of_rows in (("keys", values["seen"]), ("queries", queries + 1)):
            self.profiles[name].add(head, of_rows[kept], values["two"][kept])
        if self.maxima:
            self._raise(values, kept, samples, queries, read)

    def _plus(self, name: str, *terms: Array) -> None:
        known = (self.sums[name], *self.rests[name])
        self.sums[name], self.rests[name] = exact_sum([*known, *terms])

    def _raise(
        self,
        values: dict[str, Array],
        kept: Array,
        samples: Array,
        queries: Array,
        read: ReadRow | None,
    ) -> None:
        """Keep larger maxima and their places, the first place if there are several."""
        for name in self.maxima:
            best = np.where(kept, values[name], -np.inf).max(axis=(0, 2))
            row, head, column = np.nonzero(kept & (values[name] == best[:, None]))
            query = queries[row, head, column]
            order = np.lexsort((query, samples[row], head))
            heads, first = np.unique(head[order], return_index=True)
            place = np.full((self.heads, 2), -1)
            place[heads, 0], place[heads, 1] = samples[row][order][first], query[order][first]
            wins = self._take_larger(name, best, place)
            if name == "two":
                for at, h in zip(order[first].tolist(), heads.tolist(), strict=True):
                    if wins[h]:
                        found = None if read is None else read(int(row[at]), h, int(column[at]))
                        self.worst[h] = found

    def _take_larger(self, name: str, best: Array, place: Array) -> Array:
        """Of each head's maximum and another one the larger, or that with the smaller place."""
        old, known = self.maxima[name], self.places[name]
        before = (place[:, 0] < known[:, 0]) | (
            (place[:, 0] == known[:, 0]) & (place[:, 1] < known[:, 1])
        )
        wins: Array = (best > old) | ((best == old) & (best > -np.inf) & before)
        self.maxima[name] = np.where(wins, best, old)
        self.places[name] = np.where(wins[:, None], place, known)
        return wins

    def empty(self) -> HeadState:
        """A state of the same kind, in which nothing was seen yet."""
        return HeadState(self.heads, self.norms, self.threshold, theta=self.theta)

    def fits(self, other: HeadState) -> None:
        """Raise an error if another state cannot be merged."""
        if other.heads != self.heads:
            raise ValueError(f"cannot merge {other.heads} heads into {self.heads}")
        if (other.norms, other.threshold) != (self.norms, self.threshold):
            raise ValueError("cannot merge records with different norms or thresholds")
        if other.theta != self.theta:
            raise ValueError("cannot merge a record with θ and one without it")

    def merge(self, other: HeadState) -> None:
        """Merge what another process has seen."""
        self.fits(other)
        for mine, theirs in ((self.counts, other.counts), (self.histograms, other.histograms)):
            for name in mine:
                mine[name] += theirs[name]
        for name in self.sums:
            self._plus(name, other.sums[name], *other.rests[name])
        self.affinity = np.maximum(self.affinity, other.affinity)
        for name, profile in self.profiles.items():
            profile.merge(other.profiles[name])
        for h in range(self.heads):
            if _claim(other, h) < _claim(self, h):
                self.worst[h] = other.worst[h]
        for name in self.maxima:
            self._take_larger(name, other.maxima[name], other.places[name])

    def mean(self, name: str) -> Array:
        """The mean of each head over its rows."""
        found: Array = self.sums[name] / np.maximum(self.counts["rows"], 1)
        return found

    def quantile(self, name: str, share: float) -> Array:
        """The smallest upper bound of a quantile of each head that is known.

        A quantile is at most the upper end of its bin and at most the largest number. It is also at
        most mean / (1 - share), as so many rows are at least as large as it is and none is
        negative: where all rows are in the first bin, this tells quantiles apart.
        """
        counts = np.cumsum(self.histograms[name], axis=1)
        wanted = np.ceil(share * counts[:, -1:]).clip(1)
        cell = np.argmax(counts >= wanted, axis=1)
        ends = np.minimum(self.tops[name] * (cell + 1) / BINS, self.maxima[name])
        by_mean = self.mean(name) / (1 - share) * (1 + 1e-9)  # what sums may err by, and more
        return np.where(counts[:, -1] > 0, np.minimum(ends, by_mean), np.nan)


def _claim(state: HeadState, h: int) -> tuple[Any, ...]:
    """By what a state's worst row of a head is chosen over another's: the smaller one stays.

    Where places are not known, several rows have the same. Then what is in them decides, so that
    the order of merging never does.
    """
    row = state.worst[h]
    return (-state.maxima["two"][h], *state.places["two"][h], row is None, row or ())
