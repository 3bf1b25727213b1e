"""Which samples were seen: sorted ranges with gaps between them, each (first, one after the last).

A record keeps them instead of a count, so that parts of an audit can be merged in any order,
whichever process saw them, and nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The union of ranges in any order."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif first < end:
            found.append((first, end))
    return found


def count(spans: Iterable[Span]) -> int:
    """Number of samples in disjoint ranges."""
    return sum(end - first for first, end in spans)


def shared(one: Iterable[Span], other: Iterable[Span]) -> list[Span]:
    """The samples that are in both."""
    # Where two of them overlap in the order of their beginnings: each range has no gap inside.
    found: list[Span] = []
    furthest = {0: 0, 1: 0}  # how far the ranges of either side have come
    sides = sorted([(span, 0) for span in one] + [(span, 1) for span in other])
    for (first, end), side in sides:
        if first < (reach := min(end, furthest[1 - side])):
            found.append((first, reach))
        furthest[side] = max(end, furthest[side])
    return joined(found)


def missing(spans: Iterable[Span], total: int) -> list[Span]:
    """What sorted ranges leave of the samples from 0 to ``total``."""
    found, reached = [], 0
    for first, end in [*spans, (total, total)]:
        if reached < min(first, total):
            found.append((reached, min(first, total)))
        reached = max(reached, end)
    return found


def checked(spans: Iterable[Iterable[int]]) -> list[Span]:
    """Check ranges that were read from a file; a ValueError says what is wrong."""
    found = [(int(first), int(end)) for first, end in spans]
    if found != joined(found) or any(first < 0 for first, _ in found):
        raise ValueError(f"{found} are not sorted ranges of samples")
    return found


def said(spans: Iterable[Span]) -> str:
    """In words: ``0 to 7, 16 to 23``."""
    words = [f"{first}" if end == first + 1 else f"{first} to {end - 1}" for first, end in spans]
    return ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
