"""Heat maps as static SVG: layers by heads, with a scale that is fitted to the data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from taut.audit.report.svg import ROOM, Array, gutter, side_labels, svg
from taut.audit.report.svg_style import STEPS


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
    left = gutter(labels)
    wide, high = min(52.0, ROOM / heads), min(28.0, max(5.0, 520 / layers))
    gap = 1 if min(wide, high) > 9 else -1  # small cells overlap: no seams between them
    bottom = 20 + high * layers
    body = [f'<text class="end" x="{left - 6:g}" y="13">head</text>']
    body += [
        f'<text class="mid" x="{left + (h + 0.5) * wide:.1f}" y="13">{h}</text>'
        for h in range(0, heads, int(np.ceil(20 / wide)))
    ]
    body += side_labels(labels, left, high, full)
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
