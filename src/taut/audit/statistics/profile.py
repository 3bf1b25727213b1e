"""Profile: the mean constant of rows by the position of their query, or by their number of keys.

Rows are told apart by powers of two: 1 key, 2 or 3, 4 to 7, 8 to 15 and so on. Rows of few keys,
which an audit keeps apart, are the first three groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.audit.record_checks import finite, integers, numbers, part
from taut.audit.statistics.exact_sum import check_rests, exact_sum
from taut.audit.statistics.statistic import Array

GROUPS = 20  # powers of two; what is beyond the last one counts there


class Profile:
    """Counts and sums of the l2 constants of every head, (heads, groups)."""

    def __init__(self, heads: int) -> None:
        self.counts = np.zeros((heads, GROUPS), dtype=np.int64)
        self.sums = np.zeros((heads, GROUPS))
        self.rests: list[Array] = []  # see exact_sum

    def add(self, heads: Array, numbers: Array, values: Array) -> None:
        """Add rows: the head of each, its position or number of keys, and its constant."""
        # frexp gives the number of binary digits: 0 for 0, 1 for 1, 2 for 2 and 3, ...
        group = np.clip(np.frexp(numbers.astype(np.float64))[1], 0, GROUPS - 1)
        size = self.counts.size
        places = heads * GROUPS + group
        self.counts += np.bincount(places, minlength=size).reshape(self.counts.shape)
        added = np.bincount(places, values, minlength=size).reshape(self.sums.shape)
        self._plus(added)

    def merge(self, other: Profile) -> None:
        """Merge what another process has seen."""
        self.counts += other.counts
        self._plus(other.sums, *other.rests)

    def _plus(self, *terms: Array) -> None:
        """Add to the sums of the groups that have rows: few of them do."""
        there = self.counts.any(axis=0)
        known = [each[:, there] for each in (self.sums, *self.rests, *terms)]
        total, rests = exact_sum(known)
        self.sums = np.zeros(self.sums.shape)
        self.sums[:, there] = total
        self.rests = [np.zeros(self.sums.shape) for _ in rests]
        for full, rest in zip(self.rests, rests, strict=True):
            full[:, there] = rest

    @property
    def means(self) -> Array:
        """Mean constants, (heads, groups); NaN where there are no rows."""
        return np.where(self.counts > 0, self.sums / np.maximum(self.counts, 1), np.nan)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        rests = [finite(rest) for rest in self.rests]
        return {"counts": self.counts.tolist(), "sums": finite(self.sums), "rests": rests}

    @classmethod
    def from_dict(cls, data: Any, heads: int) -> Profile:
        """The profile that :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        found, what = cls(heads), "of a profile"
        shape = found.counts.shape
        found.counts = integers(part(data, "counts", list, "a profile"), shape, f"counts {what}")
        found.sums = numbers(part(data, "sums", list, "a profile"), shape, f"sums {what}")
        rests = part(data, "rests", list, "a profile")
        found.rests = [numbers(rest, shape, f"rests {what}") for rest in rests]
        check_rests(found.sums, found.rests, "a profile")
        return found


def group_name(group: int) -> str:
    """What a group holds, in words: ``0``, ``1``, ``2–3``, ``4–7``.

    >>> [group_name(group) for group in (0, 1, 2, 3)]
    ['0', '1', '2–3', '4–7']
    """
    if group < 2:
        return str(group)
    if group == GROUPS - 1:
        return f"{1 << (group - 1):,}…"
    return f"{1 << (group - 1)}–{(1 << group) - 1}"
