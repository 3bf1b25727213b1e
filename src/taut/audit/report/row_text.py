"""A worst row as a reader sees it: its words shaded by weight, the two keys that compete."""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from taut._base.terminal_text import printable, shortened
from taut.audit.statistics.worst_row import WorstRow

LEVELS = 9  # of shading
FAINT = 0.005  # weights below it are not shaded
HEAVIEST = 8  # keys that are listed where there is no text
_SIGNS = {"\n": "↵", "\r": "↵", "\t": "⇥"}


class ShownKey(NamedTuple):
    """A key of a row, as it is shown."""

    text: str
    level: int  # of shading, from 0 to 9
    weight: str
    mark: str  # "1" and "2" for the leading keys, else empty
    query: bool  # whether it is the query itself
    gap: bool  # whether keys before it are left out


class Rival(NamedTuple):
    """One of the two leading keys: before, and where both are equal."""

    name: str
    score: str
    weight: str
    tied_score: str
    tied_weight: str


def shown_keys(row: WorstRow) -> list[ShownKey]:
    """The keys of a text in their order."""
    found, last = [], -1
    for place, key in enumerate(row.keys):
        weight = row.weights[place]
        level = 0 if weight < FAINT else min(LEVELS, 1 + int(LEVELS * weight))
        mark = str(row.leading.index(key) + 1) if key in row.leading else ""
        own = row.place >= 0 and row.places[place] == row.place
        text = token_shown(row.tokens[place]) if row.tokens else f"{key}"
        found.append(ShownKey(text, level, weight_text(weight), mark, own, key > last + 1))
        last = key
    return found


def heaviest(row: WorstRow) -> list[tuple[str, str]]:
    """Names and weights of the heaviest keys, where there is no text to show."""
    order = sorted(range(len(row.keys)), key=lambda i: -row.weights[i])[:HEAVIEST]
    return [(key_name(row, row.keys[i]), weight_text(row.weights[i])) for i in order]


def key_name(row: WorstRow, key: int) -> str:
    """A key in words: its text and its position, or its number."""
    place = row.keys.index(key)
    where = row.places[place]
    if row.tokens and where >= 0:
        return f"“{shortened(token_shown(row.tokens[place]).strip(' '), 24)}” at position {where}"
    return f"key {key}" if where in (-1, key) else f"key {key} (position {where})"


def token_shown(token: str) -> str:
    """The text of a token, with signs for line breaks and tabs."""
    return printable("".join(_SIGNS.get(letter, letter) for letter in token)) or "∅"


def weight_text(weight: float) -> str:
    """A weight with three digits after the point."""
    return f"{weight:.3f}" if weight >= 0.0005 else "< 0.001"


def rivals(row: WorstRow) -> list[Rival]:
    """The two leading keys, and what they become where both get the same score; none for one key.

    With m the score in the middle, both weigh e^m/(2e^m + rest), and e^m is √(w₁w₂) in units of the
    weights before.
    """
    if len(row.leading) < 2:
        return []
    first, second = (row.weight_of(key) for key in row.leading)
    middle, share = sum(row.scores) / 2, math.sqrt(first * second)
    tied = share / (2 * share + max(0.0, 1 - first - second))
    return [
        Rival(
            key_name(row, key), f"{score:.3f}", weight_text(weight), f"{middle:.3f}", f"{tied:.3f}"
        )
        for key, score, weight in zip(row.leading, row.scores, (first, second), strict=True)
    ]


def flip_sentence(row: WorstRow) -> str:
    """What it takes to swap the two leading keys, in plain words."""
    if len(row.leading) < 2:
        return "The row sees one key, which has all the weight."
    if row.gap == 0:
        return "Their scores are equal: the smallest change decides which of them leads."
    return (
        f"Their scores are {row.gap:.3g} apart. The smallest change that makes them equal has "
        f"length {row.flip:.3g} in l2: lower the first by {row.gap / 2:.3g} and raise the second "
        f"by as much. Any more, and the second key leads.{_rounded(row)}"
    )


def _rounded(row: WorstRow) -> str:
    """What rounding these two scores to bfloat16 does to them, if it matters."""
    first, second = (bfloat16(score) for score in row.scores)
    if first > second:
        return ""
    return " Rounded to bfloat16, these two scores are already equal."


def bfloat16(value: float) -> float:
    """A number rounded to bfloat16, to nearest with ties to even.

    >>> bfloat16(1.00390625), bfloat16(1.01171875)
    (1.0, 1.015625)
    """
    if abs(value) > 3e38:  # beyond the largest number of float32, which has the same exponents
        return value
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    bits += 0x7FFF + ((bits >> 16) & 1)
    (found,) = struct.unpack(">f", struct.pack(">I", bits & 0xFFFF0000))
    return float(found)
