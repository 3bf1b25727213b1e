"""Nodes: the coordinates of a probability row as a short list of (entry, weight) pairs.

Exact ties form one node whose weight is their number.  Beyond the first distinct entries, all
others are moved to a grid: s -> sup_v h is convex in the entry s and 0 at s = 0 (Lemma 5), so
replacing an entry by its interpolation weights on the neighbouring grid points only increases
the sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut._softmax.proved_p.dual import Indices
from taut._softmax.proved_p.suprema import Vector

_EXACT = 40  # distinct entries kept as they are; signs are counted on these only
_GRID = 40  # grid points for all smaller entries
_GRID_DEPTH = 1e-4  # entries below this fraction of the first binned one share one chord to 0
_SIMILAR = 0.95  # a group of nodes ends when an entry is below this fraction of the group's first


class Nodes(NamedTuple):
    """Entries (descending) with weights; signs are counted in nodes start[k] : start[k + 1]."""

    entry: Vector
    weight: Vector
    start: Indices


def make_nodes(rest: Vector) -> Nodes:
    """Return nodes for the positive entries ``rest``, given in descending order."""
    entry, first, count = np.unique(-rest, return_index=True, return_counts=True)
    exact, exact_weight = -entry[:_EXACT], count[:_EXACT].astype(np.float64)
    start = [0]
    for k in range(1, exact.size):
        if exact[k] < _SIMILAR * exact[start[-1]]:
            start.append(k)
    start.append(exact.size)
    groups = np.array(start, dtype=np.int64)
    if entry.size <= _EXACT:
        return Nodes(exact, exact_weight, groups)
    grid, grid_weight = _bin(rest[first[_EXACT] :])
    return Nodes(np.concatenate((exact, grid)), np.concatenate((exact_weight, grid_weight)), groups)


def _bin(small: Vector) -> tuple[Vector, Vector]:
    """Interpolate descending positive entries on a geometric grid with an unused node at 0."""
    top = small[0]
    bottom = max(small[-1], top * _GRID_DEPTH)
    fraction = np.linspace(0.0, 1.0, _GRID) ** 1.5  # finer near the top
    grid = np.unique(np.concatenate(([0.0, bottom, top], top * (bottom / top) ** fraction[1:-1])))
    left = np.clip(np.searchsorted(grid, small, side="right") - 1, 0, grid.size - 2)
    share = np.clip((small - grid[left]) / (grid[left + 1] - grid[left]), 0.0, 1.0)
    # Suprema are >= 0, so weights may be enlarged: by the rounding of the shares and of their sum.
    eps = 2.0**-52
    below = np.bincount(left, (1.0 - share) + 4 * eps, grid.size)
    above = np.bincount(left + 1, share * (1.0 + 4 * eps), grid.size)
    weight = (below + above) * (1.0 + (small.size + 4) * eps)
    used = weight > 0.0
    used[0] = False  # the node at 0 contributes nothing
    return grid[used][::-1].copy(), weight[used][::-1].astype(np.float64)
