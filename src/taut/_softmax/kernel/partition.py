"""Subsets of probabilities whose sum is near ½, compiled: what the ∞→1 norm of M(s) rests on.

Let D be the least |Σ εᵢsᵢ| over signs ε; the norm is 1 − D². Only the entries above ``SMALL`` are
arranged, by Karmarkar and Karp's differencing. The others, which sum to r, then fill a difference d
up to r or until one of them is as large as what is left: D ≤ max(d − r, SMALL). If that leaves more
than SMALL, the large entries are arranged in every way, and D ≥ d − r for the best of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._softmax.kernel.signs import ENUMERATED, arranged

SMALL = 9e-4  # its square is what a bracket may be wide
UNDERFLOW = 2.0**-1000  # what an entry that underflowed may add, many times


@njit(error_model="numpy")
def large_entries(s: Any, row: int, floor: float) -> Any:
    """Entries of a row above ``floor`` times its sum, their places; the sums of rest and all."""
    n = s.shape[1]
    total = 0.0
    for i in range(n):
        total += s[row, i]
    limit, count, rest = floor * total, 0, 0.0
    for i in range(n):
        if s[row, i] > limit:
            count += 1
        else:
            rest += s[row, i]
    values, places = np.empty(count), np.empty(count, np.int64)
    count = 0
    for i in range(n):
        if s[row, i] > limit:
            values[count], places[count] = s[row, i], i
            count += 1
    return values, places, rest, total


def fill_subsets(s: Any, subsets: Any, out: Any) -> None:
    """Fill a subset of each row whose sum is near half of all; D of it, and the least of any.

    Both, the lines of ``out``, are relative to the sum of the row. All subsets of rows with few
    entries above 0 are tried; otherwise small entries go where less is (compiled).
    """
    for row in range(s.shape[0]):
        seen = 0
        for i in range(s.shape[1]):
            if s[row, i] > 0.0:
                seen += 1
        floor = SMALL if seen > ENUMERATED else 0.0
        values, places, rest, total = large_entries(s, row, floor)
        signs = np.empty(len(places), np.int8)
        _, least = arranged(values, rest, floor * total, signs)
        difference = 0.0
        for i in range(len(places)):
            subsets[row, places[i]] = signs[i] > 0
            difference += signs[i] * values[i]
        for i in range(s.shape[1]):
            if not s[row, i] > floor * total:
                subsets[row, i] = difference < 0.0
                difference += s[row, i] if difference < 0.0 else -s[row, i]
        found = abs(difference) / total
        out[0, row] = found
        out[1, row] = min(found, max(0.0, least - rest) / total) if floor > 0.0 else found


def fill_thetas(s: Any, margin: float, out: Any) -> None:
    """Lower and upper side of 1 − D² of every row of probabilities, into two lines (compiled).

    ``margin`` is how far rounding may have moved a sum of signed probabilities.
    """
    for row in range(s.shape[0]):
        values, places, rest, total = large_entries(s, row, SMALL)
        top = 0
        for i in range(len(values)):
            top = i if values[i] > values[top] else top
        if len(values) > 0 and 2 * values[top] >= total:  # 4p(1 − p) without subtraction
            others = rest
            for i in range(len(values)):
                others += values[i] if i != top else 0.0
            odds = others / values[top]
            value = 4.0 * odds / ((1.0 + odds) * (1.0 + odds))
            out[0, row] = value * (1.0 - 2 * margin)
            out[1, row] = min(1.0, value * (1.0 + 2 * margin) + s.shape[1] * UNDERFLOW)
            continue
        signs = np.empty(len(places), np.int8)
        found, least = arranged(values, rest, SMALL * total, signs)
        # Without small entries there is nothing that could leave one of them.
        most = (max((found - rest) / total, SMALL) if rest > 0.0 else found / total) + margin
        less = max(0.0, (least - rest) / total - margin)
        out[0, row] = max(0.0, 1.0 - most * most)
        out[1, row] = 1.0 - less * less
