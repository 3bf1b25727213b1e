"""Weights that may be changed at the same time, because no two of them overlap."""

from __future__ import annotations

from collections.abc import Sequence

from taut.models import Block, Weight

Entry = tuple[Block, str, Weight]  # a weight, its role and its block
Place = tuple[int, int | None]  # the id of a parameter, and the place in a stack
Rows = tuple[int, int] | None


def apart(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Weights in turns in which no two overlap; those that share all their entries count once."""
    turns: list[list[Entry]] = []
    taken: list[dict[Place, list[Rows]]] = []  # what the weights of each turn take up
    for entry in entries:
        place, rows = (id(entry[2].parameter), entry[2].expert), entry[2].rows
        for turn, others in zip(turns, taken, strict=True):
            same = others.setdefault(place, [])
            if rows in same:
                break
            if not any(_overlap(other, rows) for other in same):
                turn.append(entry)
                same.append(rows)
                break
        else:
            turns.append([entry])
            taken.append({place: [rows]})
    return turns


def _overlap(one: Rows, other: Rows) -> bool:
    return one is None or other is None or (one[0] < other[1] and other[0] < one[1])
