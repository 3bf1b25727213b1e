"""Sums that do not depend on the order of their terms: what a double holds, and the exact rest.

Means are kept as sums. If sums were rounded on the way, records of several machines, merged in
whatever order, would differ in their last digits from the record of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from taut.audit.statistics.statistic import Array


def exact_sum(terms: Sequence[Array]) -> tuple[Array, list[Array]]:
    """The sum of arrays of one shape, entry by entry: rounded to doubles, and what is left over.

    The rests are arrays too, as many as it takes, each rounded from what those before it leave.
    All of them together are the sum itself, and only the sum decides what they are.

    Examples
    --------
    >>> total, rests = exact_sum([np.array([1.0]), np.array([1e-20]), np.array([1e20])])
    >>> total, rests
    (array([1.e+20]), [array([1.]), array([1.e-20])])
    >>> exact_sum([total, *rests, np.array([-1e20])])
    (array([1.]), [array([1.e-20])])
    """
    if len(terms) == 2:
        return _of_two(*terms)
    entries = zip(*(term.ravel().tolist() for term in terms), strict=True)
    return _levels([_expanded(entry) for entry in entries], terms[0].shape)


def _of_two(first: Array, second: Array) -> tuple[Array, list[Array]]:
    """The usual case for all entries at once: the error of one addition is a double (Knuth)."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = first + second
        back = total - first
        rest = (first - (total - back)) + (second - back)
    if not np.isfinite(total).all():
        entries = zip(first.ravel().tolist(), second.ravel().tolist(), strict=True)
        return _levels([_expanded(entry) for entry in entries], first.shape)
    return total + 0.0, [rest + 0.0] if rest.any() else []


def _levels(found: list[list[float]], shape: tuple[int, ...]) -> tuple[Array, list[Array]]:
    """The doubles of every entry as arrays: the sums, and as many rests as any entry has."""
    levels = np.zeros((max(map(len, found), default=1), len(found)))
    for place, parts in enumerate(found):
        levels[: len(parts), place] = parts
    total, *rests = (level.reshape(shape) for level in levels)
    return total, rests


def check_rests(total: Array, rests: Sequence[Array], what: str) -> None:
    """Raise a ValueError where rests that were read from a file cannot be those of a sum."""
    again = exact_sum([total, *rests])
    same = len(again[1]) == len(rests) and np.array_equal(again[0], total, equal_nan=True)
    if not same or not all(map(np.array_equal, again[1], rests)):
        raise ValueError(f"the rests of {what} do not match the sums")


def _expanded(terms: Sequence[float]) -> list[float]:
    """One sum: the double nearest to it, the double nearest to the rest, and so on."""
    try:
        found = [math.fsum(terms)]
        if not math.isfinite(found[0]):
            return found
        left = [*terms, -found[0]]
        while rest := math.fsum(left):
            found.append(rest)
            left.append(-rest)
    except (OverflowError, ValueError):  # infinite terms, or beyond the largest double
        return [math.nan]
    return found
