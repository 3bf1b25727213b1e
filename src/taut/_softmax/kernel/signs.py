"""Signs of numbers whose sum is near 0, compiled: number partitioning, by rule and by trying all.

Written with plain loops: numba takes minutes for sorting and heaps of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

ENUMERATED = 24  # numbers of which all arrangements are tried


@njit(error_model="numpy")
def _sink(sizes: Any, names: Any, count: int, at: int) -> None:
    """Put an entry of a heap, the largest on top, below those that are larger."""
    size, name = sizes[at], names[at]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and sizes[child + 1] > sizes[child]:
            child += 1
        if sizes[child] <= size:
            break
        sizes[at], names[at] = sizes[child], names[child]
        at = child
    sizes[at], names[at] = size, name


@njit(error_model="numpy")
def differenced(values: Any, signs: Any) -> float:
    """Signs of values ≥ 0 by differencing, and their sum: the two largest go to opposite sides."""
    k = len(values)
    if k == 0:
        return 0.0
    sizes, names = values.copy(), np.arange(k)
    for at in range(k // 2 - 1, -1, -1):
        _sink(sizes, names, k, at)
    larger, smaller = np.empty(k, np.int64), np.empty(k, np.int64)
    for step in range(k - 1):
        count = k - step
        first, size = names[0], sizes[0]
        sizes[0], names[0] = sizes[count - 1], names[count - 1]
        _sink(sizes, names, count - 1, 0)
        larger[step], smaller[step] = first, names[0]
        sizes[0], names[0] = size - sizes[0], k + step
        _sink(sizes, names, count - 1, 0)
    side = np.ones(2 * k, np.int8)
    for step in range(k - 2, -1, -1):
        side[larger[step]] = side[k + step]
        side[smaller[step]] = -side[k + step]
    for i in range(k):
        signs[i] = side[i]
    return sizes[0]


@njit(error_model="numpy")
def _sorted_sums(values: Any, first: int, last: int) -> Any:
    """All subset sums of some values in increasing order, and for each the subset as bits."""
    size = 1 << (last - first)
    sums, sets = np.zeros(size), np.zeros(size, np.int64)
    both, names = np.empty(size), np.empty(size, np.int64)
    count = 1
    for bit in range(last - first):
        value = values[first + bit]
        i = j = 0
        for place in range(2 * count):
            if j >= count or (i < count and sums[i] <= sums[j] + value):
                both[place], names[place] = sums[i], sets[i]
                i += 1
            else:
                both[place], names[place] = sums[j] + value, sets[j] | (1 << bit)
                j += 1
        count *= 2
        sums, sets, both, names = both, names, sums, sets
    return sums, sets


@njit(error_model="numpy")
def enumerated(values: Any, first: int, last: int, start: float, signs: Any) -> float:
    """Signs of at most 24 values whose sum is nearest to −start, and how far it is from there.

    They are the values from ``first`` until before ``last``, and so are their signs.
    """
    middle = (first + last) // 2
    left, left_sets = _sorted_sums(values, first, middle)
    right, right_sets = _sorted_sums(values, middle, last)
    target = (left[-1] + right[-1] - start) / 2
    best, best_left, best_right = np.inf, 0, 0
    j = len(right) - 1
    for i in range(len(left)):
        while j > 0 and left[i] + right[j] > target:
            # the last one above the target counts too
            if left[i] + right[j] - target < best:
                best, best_left, best_right = left[i] + right[j] - target, i, j
            j -= 1
        if abs(left[i] + right[j] - target) < best:
            best, best_left, best_right = abs(left[i] + right[j] - target), i, j
    for i in range(first, last):
        if i < middle:
            chosen = (left_sets[best_left] >> (i - first)) & 1
        else:
            chosen = (right_sets[best_right] >> (i - middle)) & 1
        signs[i] = 2 * chosen - 1
    return 2.0 * best


@njit(error_model="numpy")
def _by_size(values: Any) -> Any:
    """Places of the values from the largest down, by insertion."""
    order = np.arange(len(values))
    for i in range(1, len(values)):
        place, j = order[i], i
        while j > 0 and values[order[j - 1]] < values[place]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = place
    return order


@njit(error_model="numpy")
def _of_many(values: Any, found: float, signs: Any) -> Any:
    """Better signs of more values than can be arranged in every way, and a bound on all signs.

    If the smaller half of an odd number of them and one more outweigh the larger half, as with
    equal values, no signs sum to less. Otherwise those in the middle go where less is, and all
    arrangements of the largest and smallest are tried, which differ most.
    """
    k = len(values)
    order = _by_size(values)
    ordered, trial = np.empty(k), np.empty(k, np.int8)
    others = start = halves = 0.0
    for i in range(k):
        ordered[i] = values[order[i]]
        others += ordered[i] if i >= ENUMERATED else 0.0
        trial[i] = -1 if i < k // 2 else 1
        halves += trial[i] * ordered[i]
    if halves > 0.0:
        better = least = halves
    else:
        least = max(0.0, enumerated(ordered, 0, ENUMERATED, 0.0, trial) - others)
        half = ENUMERATED // 2
        middle = order[half : k - half].copy()
        order[k - ENUMERATED : k - half] = order[:half]
        order[: k - ENUMERATED] = middle
        for i in range(k):
            ordered[i] = values[order[i]]
        for i in range(k - ENUMERATED):
            trial[i] = 1 if start < 0.0 else -1
            start += trial[i] * ordered[i]
        better = enumerated(ordered, k - ENUMERATED, k, start, trial)
    if better < found:
        found = better
        for i in range(k):
            signs[order[i]] = trial[i]
    return found, min(least, found)


@njit(error_model="numpy")
def arranged(values: Any, rest: float, floor: float, signs: Any) -> Any:
    """Signs of the large entries, their sum d, and a number that no signs sum to less than.

    They are searched for as long as d exceeds ``rest`` by more than ``floor``.
    """
    found = differenced(values, signs)
    if found - rest <= floor:
        return found, 0.0
    total = largest = 0.0
    for i in range(len(values)):
        total += values[i]
        largest = max(largest, values[i])
    if 2 * largest >= total + rest:  # one outweighs all others
        return found, found
    if len(values) <= ENUMERATED:
        best = enumerated(values, 0, len(values), 0.0, signs)
        return best, best
    return _of_many(values, found, signs)
