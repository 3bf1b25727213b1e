"""Heat maps and histograms as static SVG.

They are drawn by hand, not by a plotting library: rectangles with tooltips take no script and no
bundle of one, follow the light or dark scheme of the page, and cost some ten kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from taut.models import LIMIT

Array = np.ndarray[Any, np.dtype[Any]]
STEPS = 16  # of colour
LONGEST = 24  # characters of a label beside a row
LETTER = 6.7  # width of a character of a label, which has a font of fixed width
ROOM = 310  # width of what is drawn beside the labels
LIGHT = ("#edf3fa", "#5f9fd6", "#08305f")
DARK = ("#1b2835", "#2f74b3", "#b5dcff")


def style() -> str:
    """The rules that all figures share, in light and dark."""
    light = _rules(LIGHT, ink="#24292f", faint="#8c959f", bar="#2f74b3", limit="#b42318")
    dark = _rules(DARK, ink="#e3e7eb", faint="#737d88", bar="#6fb1ea", limit="#ff8f80")
    light += _curves("#2f74b3", "#b35900", "#1a7f4b", "#7d4cb8")
    dark += _curves("#6fb1ea", "#e8a456", "#5fc78f", "#bd96ea")
    return (
        "svg text{font:12px system-ui,sans-serif}"
        "svg .name{font:11px ui-monospace,monospace}.end{text-anchor:end}.mid{text-anchor:middle}"
        ".none{fill:none;stroke-dasharray:2}.limit{stroke-width:1.5;stroke-dasharray:4 3}"
        ".curve{fill:none;stroke-width:2}.mark{stroke-width:0}"
        ".dash1{stroke-dasharray:7 3}.dash2{stroke-dasharray:2 3}.dash3{stroke-dasharray:9 3 2 3}"
        f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    )


def _rules(stops: Sequence[str], *, ink: str, faint: str, bar: str, limit: str) -> str:
    """Colours from low to high through ``stops``, and those of letters and lines."""
    known = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops])
    at = np.linspace(0, len(stops) - 1, STEPS)
    mixed = [np.interp(at, range(len(stops)), known[:, i]).round().astype(int) for i in range(3)]
    steps = "".join(
        f".q{step}{{fill:#{r:02x}{g:02x}{b:02x}}}"
        for step, (r, g, b) in enumerate(zip(*mixed, strict=True))
    )
    return (
        f"{steps}svg text{{fill:{ink}}}.none,.axis{{stroke:{faint}}}.bar{{fill:{bar}}}"
        f".limit{{stroke:{limit}}}svg text.says{{fill:{limit}}}"
    )


def _curves(*colours: str) -> str:
    return "".join(f".c{i}{{stroke:{c}}}.c{i}.mark{{fill:{c}}}" for i, c in enumerate(colours))


def draw_cells(
    values: Array,
    labels: Sequence[str],
    *,
    title: str,
    end: float,
    text: Callable[[float], str],
    limit: bool = False,
) -> str:
    """Layers x heads as coloured cells; NaN is drawn as an empty cell.

    Parameters
    ----------
    values
        (layers, heads).
    labels
        One for each layer.
    title
        What a screen reader says instead of the picture.
    end
        Value of the last colour; the first is 0.
    text
        How a value is written.
    limit
        Whether ``end`` is the limit of softmax, and marked as such.
    """
    layers, heads = values.shape
    left = _gutter(labels)
    wide, high = min(26.0, ROOM / heads), min(26.0, max(5.0, 520 / layers))
    gap = 1 if min(wide, high) > 9 else -1  # small cells overlap: no seams between them
    bottom = 20 + high * layers
    body = [f'<text class="end" x="{left - 6:g}" y="13">head</text>']
    body += [
        f'<text class="mid" x="{left + (h + 0.5) * wide:.1f}" y="13">{h}</text>'
        for h in range(0, heads, int(np.ceil(20 / wide)))
    ]
    body += _labels(labels, left, high)
    for layer, head in np.ndindex(layers, heads):
        value = float(values[layer, head])
        known = bool(np.isfinite(value))
        colour = f"q{min(int(value / end * STEPS), STEPS - 1)}" if known else "none"
        says = text(value) if known else "nothing measured"
        body.append(
            f'<rect class="{colour}" x="{left + head * wide:.1f}" y="{20 + layer * high:.1f}" '
            f'width="{wide - gap:.1f}" height="{high - gap:.1f}">'
            f"<title>{escape(labels[layer])} head {head}: {says}</title></rect>"
        )
    body += _scale(left, bottom + 12, end, limit)
    return svg(left + ROOM + 8, bottom + 46, title, body)


def _scale(left: float, top: float, end: float, limit: bool) -> Iterator[str]:
    """The colours from 0 to ``end`` as a bar, with numbers."""
    step = 10
    for i in range(STEPS):
        yield f'<rect class="q{i}" x="{left + i * step:g}" y="{top:g}" width="{step}" height="10"/>'
    for share in (0, 0.5, 1):
        x = left + share * STEPS * step
        yield f'<text class="mid" x="{x:g}" y="{top + 24:g}">{share * end:.3g}</text>'
    if limit:
        x = left + STEPS * step
        yield f'<line class="limit" x1="{x:g}" x2="{x:g}" y1="{top - 4:g}" y2="{top + 12:g}"/>'
        yield f'<text class="says" x="{x + 5:g}" y="{top + 9:g}">limit ½</text>'


def draw_bars(counts: Array, labels: Sequence[str], *, title: str) -> str:
    """Histograms of constants from 0 to ½, one below the other, each scaled to its highest bar.

    ``counts`` is (rows, bins).
    """
    rows, bins = counts.shape
    left, room = _gutter(labels), ROOM - 20
    wide, high = room / bins, min(34.0, max(14.0, 900 / rows))
    bottom = 20 + high * rows
    body = list(_labels(labels, left, high))
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
    return f"{start}><style>{style()}{paper}</style>{back}{body}"


def _labels(labels: Sequence[str], left: float, high: float) -> Iterator[str]:
    """Names beside the rows; where rows are thin, only as many as there is room for."""
    for row in range(0, len(labels), int(np.ceil(12 / high))):
        name, y = labels[row], 20 + (row + 0.5) * high + 4
        half = LONGEST // 2
        short = name if len(name) <= LONGEST else f"{name[: half - 1]}…{name[-half:]}"
        yield (
            f'<text class="name end" x="{left - 6:g}" y="{y:.1f}">{escape(short)}'
            f"<title>{escape(name)}</title></text>"
        )


def _gutter(labels: Sequence[str]) -> float:
    return 12 + LETTER * min(LONGEST, max(5, *map(len, labels)))


def svg(width: float, height: float, title: str, body: Sequence[str]) -> str:
    """A picture from its parts."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
        f"{''.join(body)}</svg>"
    )
