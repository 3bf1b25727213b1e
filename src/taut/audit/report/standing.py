"""Where a model stands: its heads beside those of reference models, as strips and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taut._base.number_text import number_text
from taut._base.terminal_text import printable, shortened
from taut.audit.reference import reference_models
from taut.audit.report.figures import Figure
from taut.audit.report.svg import svg
from taut.audit.report.tables import ReportTable
from taut.models import LIMIT

if TYPE_CHECKING:
    from taut.audit.record import Record

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
LEFT, WIDE, LINE, LONGEST = 170.0, 290.0, 28.0, 22


class Strip(NamedTuple):
    """The heads of one model: a name and the quantiles of their mean constants."""

    name: str
    about: str
    heads: int
    quantiles: Sequence[float]
    own: bool


def strip(name: str, about: str, means: Sequence[float], *, own: bool = False) -> Strip:
    """A strip of mean constants."""
    said = printable(name), printable(about)
    return Strip(*said, len(means), np.quantile(means, SHARES).tolist(), own)


def standing_figure(record: Record) -> Figure | None:
    """The mean constants of all heads beside those of the reference models."""
    means = [row["mean"] for row in record.heads if row["rows"]]
    if not means or record.quick:
        return None
    name = str(record.model.get("name") or "this model").rstrip("/").split("/")[-1]
    strips = [strip(name, "this model", means, own=True)]
    for model in reference_models():
        words = model.name.replace(", at random, as transformers initialises it", " (random)")
        kind = model.kind if model.trained else "random weights, as transformers initialises them"
        strips.append(strip(words, f"{kind}; {model.data}", model.mean))
    title = "Mean constants of heads, beside those of other models"
    meaning = (
        "Each line holds the middle nine tenths of a model's heads, the box the middle half, and "
        "the stroke in it is the median. The others were measured once, on little data: they give "
        "a number its place and are not a standard. Constants depend on the data and their length."
    )
    for model in reference_models():
        if model.name == name:  # the reader would wonder which of the two is meant
            meaning += f" {name} is there twice: first as measured now, then on {model.data}."
    return Figure(title, meaning, draw_strips(strips, title), strips_table(title, strips))


def strips_table(title: str, strips: Sequence[Strip]) -> ReportTable:
    """The numbers of strips."""
    rows = [
        [each.name, str(each.heads), *(number_text(value) for value in each.quantiles), each.about]
        for each in strips
    ]
    return ReportTable(
        title, ["model", "heads", *(f"{share:.0%}" for share in SHARES), "what it is"], rows
    )


def draw_strips(strips: Sequence[Strip], title: str) -> str:
    """Boxes of quantiles on one scale from 0 to ½."""
    bottom = 10 + LINE * len(strips)
    body = []
    for place, each in enumerate(strips):
        y = 10 + (place + 0.5) * LINE
        low, first, middle, third, high = (LEFT + WIDE * q / LIMIT for q in each.quantiles)
        kind = "own" if each.own else "peer"
        says = f"{each.name}, {each.about}: median {each.quantiles[2]:.3f} of {each.heads} heads"
        body.append(
            f'<g class="{kind}"><title>{escape(says)}</title>'
            f'<text class="end" x="{LEFT - 10:g}" y="{y + 4:g}">'
            f"{escape(shortened(each.name, LONGEST))}</text>"
            f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y:g}" y2="{y:g}"/>'
            f'<rect class="box" x="{first:.1f}" y="{y - 7:g}" '
            f'width="{max(4.0, third - first):.1f}" height="14" rx="2"/>'
            + (
                f'<line class="median" x1="{middle:.1f}" x2="{middle:.1f}" y1="{y - 7:g}" '
                f'y2="{y + 7:g}"/>'
                if third - first > 8
                else ""
            )
            + "</g>"
        )
    right = LEFT + WIDE
    body.append(
        f'<line class="axis" x1="{LEFT:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
    )
    for tick in (0.0, 0.1, 0.2, 0.3, 0.4):
        x = LEFT + WIDE * tick / LIMIT
        body.append(f'<text class="mid" x="{x:g}" y="{bottom + 16:g}">{tick:g}</text>')
    body.append(f'<line class="limit" x1="{right:g}" x2="{right:g}" y1="6" y2="{bottom:g}"/>')
    body.append(f'<text class="says end" x="{right + 8:g}" y="{bottom + 16:g}">limit ½</text>')
    return svg(right + 14, bottom + 24, f"{title}: {_said(strips)}", body)


def _said(strips: Sequence[Strip]) -> str:
    return "; ".join(f"{each.name} median {each.quantiles[2]:.3f}" for each in strips)
