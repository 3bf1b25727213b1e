"""Empirical constants of Nair (2025) on a sample of rows, over a grid of step sizes and norms.

Which rows are taken, and along which random directions they are moved, depends on the seed, the
layer and the numbers of the samples of a batch alone, so that several processes do as one would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from taut._base.array import namespace, quietly
from taut._softmax import directions, local_lipschitz, step_ratio
from taut.audit.record_checks import count, finite, numbers, part
from taut.audit.statistics.exact_sum import check_rests, exact_sum
from taut.models import HIDDEN, AttentionRows

Array = np.ndarray[Any, np.dtype[Any]]
_ARRAYS, _SUMS = ("random", "worst", "lower", "upper"), ("counts", "shares")
LENGTHS = 20  # powers of 2 by which rows are told apart by their length
# What the numbers of a grid are: steps along directions are measured, the rest is certified.
GRID_KINDS = {"random": "lower", "worst": "lower", "lower": "lower", "upper": "upper"}


def pick(
    rows: AttentionRows,
    kept: Array,
    samples: Array,
    layer: int,
    seed: int,
    *,
    first: int,
    count: int,
) -> list[Array]:
    """Sample rows of each of the first samples: their scores without masks."""
    found = []
    for index, sample in enumerate(samples):
        if not 0 <= sample < first or not kept[index].any():
            continue
        source = np.random.default_rng((seed, layer, int(sample)))
        heads, queries = np.nonzero(kept[index])
        for place in source.integers(len(heads), size=count):
            row = rows.row(index, int(heads[place]), int(queries[place])).double().cpu().numpy()
            row = row[row > HIDDEN]
            if len(row) > 1:
                found.append(row)
    return found


class Ratios(NamedTuple):
    """Measurements of each row: (rows, step sizes, norms), and (rows, norms)."""

    random: Array
    worst: Array
    lower: Array  # exact or certified local constants
    upper: Array
    lengths: Array  # of the rows


@quietly
def ratios(
    rows: Sequence[Array], epsilons: Sequence[float], norms: Sequence[float], seed: int
) -> Ratios:
    """Empirical and local constants of all rows at once: rows of any length, filled with masks."""
    x = np.full((len(rows), max(map(len, rows))), -math.inf)
    for line, row in zip(x, rows, strict=True):
        line[: len(row)] = row
    xp, shape = namespace(x), (len(rows), len(epsilons), len(norms))
    lengths = np.array([len(row) for row in rows])
    sides = (len(rows), len(norms))
    found = Ratios(
        np.zeros(shape), np.zeros(shape), np.zeros(sides), np.zeros(sides), lengths
    )  # fmt: skip
    for j, p in enumerate(norms):
        bound = local_lipschitz(x, p=p)
        found.lower[:, j], found.upper[:, j] = bound.lower, bound.upper
        for name in ("random", "worst"):
            tried = directions(xp, x, p, 1.0, name, 1, seed)
            for i, epsilon in enumerate(epsilons):
                best = [step_ratio(xp, x, v, p, epsilon, 1.0) for v in tried]
                getattr(found, name)[:, i, j] = np.max(best, axis=0)
    return found


class Grid:
    """Largest empirical constants of a layer: along random and along worst directions."""

    def __init__(self, epsilons: Sequence[float], norms: Sequence[float]) -> None:
        self.epsilons, self.norms = tuple(epsilons), tuple(norms)
        shape = (len(self.epsilons), len(self.norms))
        self.random, self.worst = np.zeros(shape), np.zeros(shape)
        # Largest exact or certified local constant of the same rows, for each norm.
        self.lower, self.upper = np.zeros(shape[1]), np.zeros(shape[1])
        self.rows = 0
        # By the number of keys, up to 2, 4, 8, ...: rows, and the sum of what a random direction
        # reaches of what the worst one does, with the smallest step.
        self.counts, self.shares = np.zeros(LENGTHS), np.zeros((LENGTHS, shape[1]))
        self.rests: list[Array] = []  # of the sums, see exact_sum

    def take(self, found: Ratios, chosen: Array) -> None:
        """Add the rows of this layer among those that were measured."""
        self.rows += int(chosen.sum())
        for name in _ARRAYS:
            most = getattr(found, name)[chosen].max(axis=0)
            setattr(self, name, np.maximum(getattr(self, name), most))
        places = np.ceil(np.log2(np.maximum(found.lengths[chosen], 2))).astype(int) - 1
        worst = found.worst[chosen, 0]
        share = np.divide(found.random[chosen, 0], worst, out=np.ones_like(worst), where=worst > 0)
        np.add.at(self.counts, np.minimum(places, LENGTHS - 1), 1)
        added = np.zeros_like(self.shares)
        np.add.at(added, np.minimum(places, LENGTHS - 1), share)
        self.shares, self.rests = exact_sum([self.shares, *self.rests, added])

    def fits(self, other: Grid) -> None:
        """Raise an error if another grid cannot be merged."""
        if (other.epsilons, other.norms) != (self.epsilons, self.norms):
            raise ValueError("cannot merge grids with different step sizes or norms")

    def merge(self, other: Grid) -> None:
        """Merge what another process has seen."""
        self.fits(other)
        self.rows += other.rows
        self.counts += other.counts
        terms = [self.shares, *self.rests, other.shares, *other.rests]
        self.shares, self.rests = exact_sum(terms)
        for name in _ARRAYS:
            setattr(self, name, np.maximum(getattr(self, name), getattr(other, name)))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; the exponent ∞ is written as a word."""
        return {
            "epsilons": list(self.epsilons),
            "norms": ["inf" if math.isinf(p) else p for p in self.norms],
            "rows": self.rows,
            **{name: finite(getattr(self, name)) for name in (*_ARRAYS, *_SUMS)},
            "rests": [finite(rest) for rest in self.rests],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Grid:
        """The grid that :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        epsilons = part(data, "epsilons", list, "grid")
        norms = [math.inf if p == "inf" else p for p in part(data, "norms", list, "grid")]
        if not epsilons or not all(type(e) in (int, float) and 0 < e < math.inf for e in epsilons):
            raise ValueError("the step sizes of a grid must be numbers above 0")
        if not norms or not all(type(p) in (int, float) and p >= 1 for p in norms):
            raise ValueError("the norms of a grid must be numbers of at least 1")
        sides, table = (len(norms),), (len(epsilons), len(norms))
        shapes = (table, table, sides, sides, (LENGTHS,), (LENGTHS, *sides))
        read = {
            name: numbers(data.get(name), shape, f"{name!r} of a grid")
            for name, shape in zip((*_ARRAYS, *_SUMS), shapes, strict=True)
        }
        grid = cls(epsilons, [float(p) for p in norms])
        grid.rows = count(data, "rows", "grid")
        rests = part(data, "rests", list, "grid")
        grid.rests = [numbers(rest, shapes[-1], "'rests' of a grid") for rest in rests]
        check_rests(read["shares"], grid.rests, "a grid")
        for name, values in read.items():
            setattr(grid, name, values)
        return grid
