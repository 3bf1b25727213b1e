"""A worst row of an image: its patches shaded by weight, over a small picture of the image."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from taut.audit.report.row_text import LEVELS, weight_text
from taut.audit.report.svg import svg
from taut.audit.statistics.worst_row import WorstRow

WIDE = 224.0  # of the drawing


class PatchGrid(NamedTuple):
    """How the keys of a row lie in an image."""

    rows: int
    columns: int
    before: int  # keys before the first patch, such as a class token

    def name(self, row: WorstRow, key: int) -> str:
        """A key in words."""
        place = row.places[row.keys.index(key)]
        return self.place_name(place) if place >= 0 else f"learned token {key}"

    def place_name(self, place: int) -> str:
        """A patch in words, counted from 1 as one counts rows on paper."""
        line, column = divmod(place, self.columns)
        return f"patch in line {line + 1}, column {column + 1}"


def patch_grid(row: WorstRow, size: Any) -> PatchGrid | None:
    """The grid of patches, if all keys are patches of the whole image after some learned tokens.

    ``size`` is height and width of the images, as records have it; square if it is not known.
    """
    offsets = {key - place for key, place in zip(row.keys, row.places, strict=True) if place >= 0}
    if len(offsets) != 1:
        return None
    (before,) = offsets
    high, wide = size if _is_size(size) else (1, 1)
    count = row.seen - before
    columns = round((count * wide / high) ** 0.5) if count > 0 else 0
    if not columns or count % columns or before < 0:
        return None
    lines = count // columns
    if lines * wide != columns * high or max(row.places) >= count:
        return None
    return PatchGrid(lines, columns, before)


def _is_size(size: Any) -> bool:
    sides = isinstance(size, Sequence) and len(size) == 2
    return sides and all(type(side) is int and side > 0 for side in size)


def draw_patches(row: WorstRow, grid: PatchGrid, picture: str) -> str:
    """The patches as squares; ``picture`` is the name of the image in the page, or empty."""
    step = WIDE / grid.columns
    high = step * grid.rows
    body = [f'<rect class="none" width="{WIDE:g}" height="{high:g}"/>']
    if picture:
        body.append(f'<use href="#{escape(picture)}" width="{WIDE:g}" height="{high:g}"/>')
    for place, weight in zip(row.places, row.weights, strict=True):
        if place < 0:
            continue
        line, column = divmod(place, grid.columns)
        level = min(LEVELS, 1 + int(LEVELS * weight))
        says = f"{grid.place_name(place)}: {weight_text(weight)}"
        body.append(
            f'<rect class="p{level}" x="{column * step:.1f}" y="{line * step:.1f}" '
            f'width="{step:.1f}" height="{step:.1f}"><title>{says}</title></rect>'
        )
    marks = [(f"lead{n}", row.places[row.keys.index(k)]) for n, k in enumerate(row.leading, 1)]
    for kind, place in (*marks, ("query", row.place)):
        if place >= 0:
            line, column = divmod(place, grid.columns)
            x, y = (column + 0.5) * step, (line + 0.5) * step
            around = max(7.0, 0.6 * step) if kind != "query" else max(3.0, step / 5)
            body.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{around:.1f}"/>')
    says = f"{grid.rows} × {grid.columns} patches, shaded by weight"
    return svg(WIDE, high, says, body)
