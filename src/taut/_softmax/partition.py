"""The subset whose probability is nearest to ½, on which the ∞→1 norm of M(s) rests.

‖M‖_{∞→1} = 4 max_S P(S)(1 − P(S)) (theorem inf-to-1) is a number-partitioning problem. It is solved
exactly for up to 24 entries by meeting in the middle. Beyond that the largest 24 are enumerated,
the small rest is relaxed to a continuous amount (upper bound) and filled greedily (lower bound).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_Vector = np.ndarray[Any, np.dtype[Any]]

LARGEST_EXACT = 24


class Partition(NamedTuple):
    """A subset (as a mask), its distance from ½, and a lower bound on every subset's distance."""

    subset: _Vector
    distance: float
    least_distance: float


def nearest_half(s: _Vector) -> Partition:
    """Subset of the probabilities ``s`` whose sum is nearest to ½."""
    order = np.argsort(-s, kind="stable")
    large, small = order[:LARGEST_EXACT], order[LARGEST_EXACT:]
    small = small[s[small] > 0]
    subset = np.zeros(s.shape, dtype=bool)
    slack = float(np.sum(s[small]))
    # With the small entries as a continuous amount in [0, slack], aim at the middle of it.
    chosen, total = _closest_subset(s[large], 0.5 - slack / 2)
    subset[large] = chosen
    least = max(0.0, abs(total + slack / 2 - 0.5) - slack / 2)
    missing = 0.5 - total
    for index in small:  # largest first
        if s[index] <= missing:
            subset[index] = True
            missing -= s[index]
    distance = abs(float(np.sum(s[subset])) - 0.5)
    if small.size == 0:  # the search was exhaustive
        return Partition(subset, distance, distance)
    return Partition(subset, distance, min(least, distance))


def _closest_subset(values: _Vector, target: float) -> tuple[_Vector, float]:
    """Subset of at most 24 values whose sum is closest to the target, as a mask, and its sum."""
    half = len(values) // 2
    left, right = _subset_sums(values[:half]), _subset_sums(values[half:])
    order = np.argsort(right)
    place = np.searchsorted(right[order], target - left)
    candidates = [np.clip(place - shift, 0, len(right) - 1) for shift in (0, 1)]
    errors = [np.abs(left + right[order[c]] - target) for c in candidates]
    side = int(np.min(errors[1]) < np.min(errors[0]))
    i = int(np.argmin(errors[side]))
    j = int(order[candidates[side][i]])
    bits = [(i >> k) & 1 for k in range(half)] + [(j >> k) & 1 for k in range(len(values) - half)]
    return np.array(bits, dtype=bool), float(left[i] + right[j])


def _subset_sums(values: _Vector) -> _Vector:
    """All 2^k subset sums; bit k of the index says whether values[k] is in."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums
