"""Small drawings for the panel of a head: its histogram, and its constants in groups of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from taut.audit.report.svg import Array, svg
from taut.models import LIMIT

WIDE, HIGH, LEFT, TOP = 330.0, 84.0, 8.0, 16.0
DIGIT = 6.0  # width of a digit of the smallest text


def draw_histogram(counts: Array, mean: float, title: str) -> str:
    """Rows by constant from 0 to ½, as one outline; a mark shows the mean."""
    step, most = WIDE / len(counts), max(1, int(counts.max()))
    bottom = TOP + HIGH
    path = [f"M{LEFT:g} {bottom:g}"]
    for count in counts:
        path.append(f"V{bottom - HIGH * int(count) / most:.0f}h{step:g}")
    body = [f'<path class="bar" d="{"".join(path)}V{bottom:g}z"/>']
    body.append(_line("axis", LEFT, bottom, LEFT + WIDE, bottom))
    body += [
        f'<text class="mid" x="{LEFT + tick / LIMIT * WIDE:g}" y="{bottom + 15:g}">{tick:g}</text>'
        for tick in (0.0, 0.1, 0.2, 0.3, 0.4)
    ]
    body.append(_line("limit", LEFT + WIDE, TOP, LEFT + WIDE, bottom))
    body.append(f'<text class="says end" x="{LEFT + WIDE:g}" y="{bottom + 15:g}">limit ½</text>')
    x = LEFT + min(mean / LIMIT, 1.0) * WIDE
    body.append(_line("mean", x, TOP, x, bottom))
    side = "end" if x > LEFT + WIDE / 2 else "start"
    shift = -4 if side == "end" else 4
    body.append(f'<text class="{side}" x="{x + shift:.1f}" y="{TOP - 4:g}">mean {mean:.3f}</text>')
    return svg(LEFT + WIDE + 8, bottom + 20, title, body)


class GroupMean(NamedTuple):
    """The mean constant of a group of rows."""

    name: str
    label: str  # the first number of the group
    mean: float
    rows: int
    apart: bool  # whether these rows are kept apart, as they see few keys


def draw_groups(groups: Sequence[GroupMean], title: str) -> str:
    """Mean constants of groups of rows as bars, each with its number above; outlined if apart."""
    bottom = TOP + HIGH
    step = WIDE / max(len(groups), 5)
    most = max((group.mean for group in groups), default=0.0) or 1.0
    longest = max((len(group.label) for group in groups), default=0)
    every = max(1, math.ceil((longest + 1) * DIGIT / step))  # labels do not run into each other
    body = ['<g class="mid tiny">']
    for place, group in enumerate(groups):
        tall = max(1.0, HIGH * group.mean / most)
        x = LEFT + place * step
        kind = "bar hollow" if group.apart else "bar"
        middle = x + step / 2
        label = group.label if place % every == 0 else ""
        body.append(
            f'<rect class="{kind}" x="{x + 2:.0f}" y="{bottom - tall:.0f}" width="{step - 4:.0f}" '
            f'height="{tall:.0f}"/><text x="{middle:.0f}" y="{bottom - tall - 3:.0f}">'
            f'{group.mean:.2f}</text><text x="{middle:.0f}" y="{bottom + 13:.0f}">'
            f"{escape(label)}</text>"
        )
    body.append(f"</g>{_line('axis', LEFT, bottom, LEFT + WIDE, bottom)}")
    return svg(LEFT + WIDE + 8, bottom + 20, title, body)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def summary_of(counts: Array) -> str:
    """The shape of a histogram in words, for those who do not see it."""
    total = int(counts.sum())
    if not total:
        return "no rows"
    edges = np.linspace(0, LIMIT, len(counts) + 1)
    fullest = int(counts.argmax())
    return (
        f"{total:,} rows; the fullest bin is {edges[fullest]:.2f} to {edges[fullest + 1]:.2f} with "
        f"{counts[fullest] / total:.0%} of them"
    )
