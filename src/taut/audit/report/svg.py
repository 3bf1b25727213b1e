"""Histograms as static SVG, and what all figures are made of.

They are drawn by hand, not by a plotting library: rectangles with tooltips take no script and no
bundle of one, follow the light or dark scheme of the page, and cost some ten kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from taut.audit.report.svg_style import style
from taut.models import LIMIT

Array = np.ndarray[Any, np.dtype[Any]]
LONGEST = 24  # characters of a label beside a row
LETTER = 6.7  # width of a character of a label, which has a font of fixed width
ROOM = 330  # width of what is drawn beside the labels


def draw_bars(counts: Array, labels: Sequence[str], *, title: str) -> str:
    """Histograms of constants from 0 to ½, one below the other, each scaled to its highest bar.

    ``counts`` is (rows, bins).
    """
    rows, bins = counts.shape
    left, room = gutter(labels), ROOM - 20
    wide, high = room / bins, min(34.0, max(14.0, 900 / rows))
    bottom = 20 + high * rows
    body = list(side_labels(labels, left, high))
    for row, bin_ in np.argwhere(counts):
        count, total = int(counts[row, bin_]), int(counts[row].sum())
        tall = max(0.5, (high - 4) * count / int(counts[row].max()))
        x, y = left + bin_ * wide, 16 + (row + 1) * high - tall
        low, up = LIMIT * bin_ / bins, LIMIT * (bin_ + 1) / bins
        body.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{tall:.1f}">'
            f"<title>{escape(labels[row])}, {low:.2f} to {up:.2f}: {count / total:.1%} of the rows"
            "</title></rect>"
        )
    for row in range(rows):
        y = f"{16.5 + (row + 1) * high:.1f}"
        body.append(f'<line class="axis" x1="{left:g}" x2="{left + room:g}" y1="{y}" y2="{y}"/>')
    for tick in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
        x = left + tick / LIMIT * room
        body.append(f'<text class="mid" x="{x:g}" y="{bottom + 12:g}">{tick:g}</text>')
    x = left + room
    body.append(f'<line class="limit" x1="{x:g}" x2="{x:g}" y1="16" y2="{bottom:g}"/>')
    body.append(f'<text class="says end" x="{x + 8:g}" y="12">limit ½</text>')
    body.append(
        f'<text class="mid" x="{left + room / 2:g}" y="{bottom + 28:g}">constant in l2</text>'
    )
    return svg(left + ROOM + 8, bottom + 34, title, body)


def standalone(svg: str) -> str:
    """A figure that brings its rules and its background along."""
    start, body = svg.split(">", 1)
    paper = ".paper{fill:#fff}@media(prefers-color-scheme:dark){.paper{fill:#14181d}}"
    back = '<rect class="paper" width="100%" height="100%"/>'
    start = start.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{start}><style>{style()}{paper}</style>{back}{body}"


def side_labels(
    labels: Sequence[str], left: float, high: float, full: Sequence[str] = ()
) -> Iterator[str]:
    """Names beside the rows; where rows are thin, only as many as there is room for."""
    for row in range(0, len(labels), int(np.ceil(12 / high))):
        name, y = labels[row], 20 + (row + 0.5) * high + 4
        half = LONGEST // 2
        short = name if len(name) <= LONGEST else f"{name[: half - 1]}…{name[-half:]}"
        yield (
            f'<text class="name end" x="{left - 6:g}" y="{y:.1f}">{escape(short)}'
            f"<title>{escape(full[row] if full else name)}</title></text>"
        )


def gutter(labels: Sequence[str]) -> float:
    """Width of the names beside the rows."""
    return 12 + LETTER * min(LONGEST, max(5, *map(len, labels)))


def svg(
    width: float,
    height: float,
    title: str,
    body: Sequence[str],
    *,
    role: str = "img",
    more: str = "",
) -> str:
    """A picture from its parts."""
    return (
        f'<svg role="{role}" aria-label="{escape(title)}"{more} '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
        f"{''.join(body)}</svg>"
    )
