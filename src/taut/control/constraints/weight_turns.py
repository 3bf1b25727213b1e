"""Weights that may be changed at the same time, because no two of them overlap."""

from __future__ import annotations

from collections.abc import Sequence

from taut.models import Block, Weight

Entry = tuple[Block, str, Weight]  # a weight, its role and its block


def apart(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Weights in turns in which no two overlap; those that share all their entries count once."""
    turns: list[list[Entry]] = []
    for entry in entries:
        for turn in turns:
            same = [other[2] for other in turn if other[2].parameter is entry[2].parameter]
            if any(other.rows == entry[2].rows for other in same):
                break
            if not any(_overlap(other.rows, entry[2].rows) for other in same):
                turn.append(entry)
                break
        else:
            turns.append([entry])
    return turns


def _overlap(one: tuple[int, int] | None, other: tuple[int, int] | None) -> bool:
    return one is None or other is None or (one[0] < other[1] and other[0] < one[1])
