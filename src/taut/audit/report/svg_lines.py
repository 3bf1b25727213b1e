"""Curves as static SVG: constants against exponents or step sizes, with the limit ½."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np

from taut.audit.report.svg import svg
from taut.models import LIMIT

LEFT, TOP, WIDE, HIGH = 40.0, 22.0, 330.0, 180.0
TALLEST = 1.1 * LIMIT  # what the upper end of the axis stands for
MARKS = 4  # shapes and dashes that tell curves apart without colour


def draw_lines(
    places: Sequence[str], curves: Mapping[str, Sequence[float]], *, axis: str, title: str
) -> str:
    """One curve for each name over places that lie equally far apart.

    Parameters
    ----------
    places
        Words below the axis.
    curves
        Values from 0 to ½ at the places, by name; NaN where there is none.
    axis
        What the places are.
    title
        What a screen reader says instead of the picture.
    """
    bottom = TOP + HIGH
    body = list(_frame(places, axis))
    for number, (name, values) in enumerate(curves.items()):
        there = [i for i, value in enumerate(values) if value == value]  # NaN is left out
        points = [(_x(i, len(places)), _y(values[i])) for i in there]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        kind = number % MARKS
        body.append(f'<polyline class="curve dash{kind} c{kind}" points="{line}"/>')
        for i, (x, y) in zip(there, points, strict=True):
            place, value = places[i], values[i]
            says = f"{name}, {axis} {place}: {value:.4f}"
            body.append(f"{_mark(kind, x, y)}<title>{escape(says)}</title></path>")
        y = bottom + 52 + 18 * number
        body.append(f'<path class="curve dash{kind} c{kind}" d="M{LEFT:g} {y - 4:g}h28"/>')
        body.append(f"{_mark(kind, LEFT + 14, y - 4)}</path>")
        body.append(f'<text x="{LEFT + 36:g}" y="{y:g}">{escape(name)}</text>')
    return svg(LEFT + WIDE + 16, bottom + 46 + 18 * len(curves), title, body)


def _frame(places: Sequence[str], axis: str) -> Iterator[str]:
    """Axes, words and the limit."""
    right, bottom = LEFT + WIDE, TOP + HIGH
    yield f'<line class="axis" x1="{LEFT:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
    for tick in np.arange(0.0, LIMIT + 0.05, 0.1):
        y = _y(float(tick))
        yield f'<text class="end" x="{LEFT - 6:g}" y="{y + 4:.1f}">{tick:.1f}</text>'
    for i in range(0, len(places), -(-len(places) // 8)):  # as many words as there is room for
        place, x = places[i], _x(i, len(places))
        yield f'<text class="mid" x="{x:.1f}" y="{bottom + 16:g}">{escape(place)}</text>'
    yield f'<text class="mid" x="{LEFT + WIDE / 2:g}" y="{bottom + 34:g}">{escape(axis)}</text>'
    y = _y(LIMIT)
    yield f'<line class="limit" x1="{LEFT:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
    yield f'<text class="says end" x="{right:g}" y="{y - 5:.1f}">limit ½</text>'


def _x(place: int, places: int) -> float:
    return LEFT + WIDE * (place + 0.5) / places


def _y(value: float) -> float:
    return TOP + HIGH * (1 - value / TALLEST)


def _mark(kind: int, x: float, y: float) -> str:
    """The start of a path: a dot, a square, a triangle or a diamond."""
    shapes = (
        f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        f"M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z",
        f"M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z",
        f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
    )
    return f'<path class="c{kind} mark" d="{shapes[kind]}">'
