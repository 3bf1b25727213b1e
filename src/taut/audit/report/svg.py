"""Heat maps and histograms as static SVG.

They are drawn by hand, not by a plotting library: rectangles with tooltips take no script and no
bundle of one, follow the light or dark scheme of the page, and cost some ten kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from taut.models import LIMIT

Array = np.ndarray[Any, np.dtype[Any]]
STEPS = 16  # of colour
LONGEST = 24  # characters of a label beside a row
LETTER = 6.7  # width of a character of a label, which has a font of fixed width
ROOM = 330  # width of what is drawn beside the labels
LIGHT = ("#edf3fa", "#5f9fd6", "#08305f")
DARK = ("#1b2835", "#2f74b3", "#b5dcff")
# Less and more, in two colours that colour-blind readers can tell apart.
CHANGE_LIGHT = ("#1d5fa8", "#8fbbe6", "#f1f1f1", "#f0b27a", "#b35806")
CHANGE_DARK = ("#7cb8f2", "#2f5f8f", "#262c33", "#8f5a1f", "#f0a24e")


def style() -> str:
    """The rules that all figures share, in light and dark."""
    light = _steps("d", CHANGE_LIGHT) + _rules(
        LIGHT, ink="#24292f", faint="#8c959f", bar="#2f74b3", limit="#b42318"
    )
    dark = _steps("d", CHANGE_DARK) + _rules(
        DARK, ink="#e3e7eb", faint="#737d88", bar="#6fb1ea", limit="#ff8f80"
    )
    light += _curves("#2f74b3", "#b35900", "#1a7f4b", "#7d4cb8")
    dark += _curves("#6fb1ea", "#e8a456", "#5fc78f", "#bd96ea")
    return (
        "svg text{font:12px system-ui,sans-serif}"
        "svg .name{font:11px ui-monospace,monospace}.end{text-anchor:end}.mid{text-anchor:middle}"
        ".none{fill:none;stroke-dasharray:2}.limit{stroke-width:1.5;stroke-dasharray:4 3}"
        ".curve{fill:none;stroke-width:2}.mark{stroke-width:0}"
        ".dot{fill:#fff;stroke:#000;stroke-width:1}.hollow{fill-opacity:.35}"
        "svg .tiny text{font-size:10px}"
        ".dash1{stroke-dasharray:7 3}.dash2{stroke-dasharray:2 3}.dash3{stroke-dasharray:9 3 2 3}"
        f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    )


def _rules(stops: Sequence[str], *, ink: str, faint: str, bar: str, limit: str) -> str:
    """Colours from low to high through ``stops``, and those of letters and lines."""
    steps = _steps("q", stops)
    return (
        f"{steps}svg text{{fill:{ink}}}svg .faint{{fill:{faint}}}.none,.axis{{stroke:{faint}}}"
        f".bar{{fill:{bar}}}.mean{{stroke:{ink};stroke-width:1.5}}"
        f".limit{{stroke:{limit}}}svg text.says{{fill:{limit}}}"
    )


def _steps(name: str, stops: Sequence[str]) -> str:
    """Rules for the steps of colour from the first stop to the last."""
    known = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops])
    at = np.linspace(0, len(stops) - 1, STEPS)
    mixed = [np.interp(at, range(len(stops)), known[:, i]).round().astype(int) for i in range(3)]
    return "".join(
        f".{name}{step}{{fill:#{r:02x}{g:02x}{b:02x}}}"
        for step, (r, g, b) in enumerate(zip(*mixed, strict=True))
    )


def _curves(*colours: str) -> str:
    return "".join(f".c{i}{{stroke:{c}}}.c{i}.mark{{fill:{c}}}" for i, c in enumerate(colours))


class CellScale(NamedTuple):
    """What the colours of a heat map stand for."""

    low: float
    high: float
    words: tuple[str, str] = ("low", "high")  # at its ends
    limit: bool = False  # whether these are constants, which have the limit ½
    colours: str = "q"  # from pale to strong; "d" for two colours that meet at 0 in the middle

    def colour(self, value: float) -> int:
        """The step of colour of a value."""
        share = (value - self.low) / (self.high - self.low)
        return min(max(int(share * STEPS), 0), STEPS - 1)


def fitted_scale(
    values: Array, words: tuple[str, str] = ("low", "high"), *, limit: bool = False
) -> CellScale:
    """A scale from about the smallest to about the largest value, with round ends."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if high <= low:
        low, high = min(0.0, low), max(high, 0.0) or 1.0
    step = 10.0 ** np.floor(np.log10(high - low))
    step = next(step / part for part in (10, 5, 2, 1) if (high - low) / (step / part) <= 12)
    # Half a step is not lost to rounding, and a step is as short as its digits.
    bottom, top = np.floor(low / step + 1e-9) * step, np.ceil(high / step - 1e-9) * step
    return CellScale(float(f"{bottom:.10g}"), float(f"{top:.10g}"), words, limit)


def draw_cells(
    values: Array,
    labels: Sequence[str],
    *,
    title: str,
    scale: CellScale,
    text: Callable[[float], str],
    link: Callable[[int, int], str] | None = None,
    marked: Collection[tuple[int, int]] = (),
    full: Sequence[str] = (),
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
    scale
        What the colours stand for.
    text
        How a value is written.
    link
        Where the cell of a layer and head leads; nothing for no link.
    marked
        Layers and heads that have a dot.
    full
        Names of the layers in full, shown on hovering; the labels by default.
    """
    layers, heads = values.shape
    left = _gutter(labels)
    wide, high = min(52.0, ROOM / heads), min(28.0, max(5.0, 520 / layers))
    gap = 1 if min(wide, high) > 9 else -1  # small cells overlap: no seams between them
    bottom = 20 + high * layers
    body = [f'<text class="end" x="{left - 6:g}" y="13">head</text>']
    body += [
        f'<text class="mid" x="{left + (h + 0.5) * wide:.1f}" y="13">{h}</text>'
        for h in range(0, heads, int(np.ceil(20 / wide)))
    ]
    body += _labels(labels, left, high, full)
    for layer, head in np.ndindex(layers, heads):
        value = float(values[layer, head])
        known = bool(np.isfinite(value))
        colour = f"{scale.colours}{scale.colour(value)}" if known else "none"
        says = text(value) if known else "nothing measured"
        cell = (
            f'<rect class="cell {colour}" x="{left + head * wide:.1f}" y="{20 + layer * high:.1f}" '
            f'width="{wide - gap:.1f}" height="{high - gap:.1f}">'
            f"<title>{escape(labels[layer])} head {head}: {says}</title></rect>"
        )
        to = link(layer, head) if link is not None else ""
        if (layer, head) in marked:
            x, y = left + (head + 0.5) * wide - gap / 2, 20 + (layer + 0.5) * high - gap / 2
            dot = max(1.5, min(3.5, high / 6))
            cell += f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{dot:.1f}"/>'
        number = layer * heads + head
        body.append(f'<a href="#{to}" data-cell="{number}">{cell}</a>' if to else cell)
    body += _scale(left, bottom + 12, scale, float(np.nanmax(values, initial=0.0)), text)
    more = f' data-heads="{heads}"' if link is not None else ""
    role = "group" if link is not None else "img"
    return svg(left + ROOM + 8, bottom + 62, title, body, role=role, more=more)


def _scale(
    left: float, top: float, scale: CellScale, largest: float, text: Callable[[float], str]
) -> Iterator[str]:
    """The colours as a bar with numbers, and what is high."""
    step = 12
    yield '<g class="scale">'
    for i in range(STEPS):
        colour, x = f"{scale.colours}{i}", left + i * step
        yield f'<rect class="{colour}" x="{x:g}" y="{top:g}" width="{step}" height="10"/>'
    ends = (("start", 0.0, scale.words[0]), ("end", 1.0, scale.words[1]))
    for side, share, word in ends:
        x, value = left + share * STEPS * step, scale.low + share * (scale.high - scale.low)
        yield f'<text class="{side}" x="{x:g}" y="{top + 24:g}">{value:.4g}</text>'
        yield f'<text class="{side} faint" x="{x:g}" y="{top + 38:g}">{word}</text>'
    if scale.limit:
        x = left + STEPS * step + 16
        yield f'<text x="{x:g}" y="{top + 9:g}">largest {text(largest)}</text>'
        yield f'<text class="says" x="{x:g}" y="{top + 24:g}">limit ½</text>'
    yield "</g>"


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
    start = start.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{start}><style>{style()}{paper}</style>{back}{body}"


def _labels(
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


def _gutter(labels: Sequence[str]) -> float:
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
