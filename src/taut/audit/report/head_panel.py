"""The panel of a head: its numbers, its histogram, and its most sensitive row with the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from taut.audit.reference import share_below
from taut.audit.report.patches import draw_patches, patch_grid
from taut.audit.report.row_groups import groups_of_head
from taut.audit.report.row_text import (
    Rival,
    ShownKey,
    flip_sentence,
    heaviest,
    rivals,
    shown_keys,
    token_shown,
    weight_text,
)
from taut.audit.report.svg_small import GroupMean, draw_groups, draw_histogram, summary_of
from taut.audit.report.tables import bars, layer_name

if TYPE_CHECKING:
    from taut.audit.layer_record import LayerRecord
    from taut.audit.record import Record
    from taut.audit.statistics.worst_row import WorstRow

MOST = 512  # heads that have a panel, the most sensitive first: pages of huge models stay usable
SHOWN = ("mean", "median_upper", "largest", "near", "entropy", "top", "range", "kl_scores")


class ShownRow(NamedTuple):
    """The most sensitive row of a head, ready to be shown."""

    heading: str
    sentence: str
    keys: Sequence[ShownKey]  # of a text; empty otherwise
    listed: Sequence[tuple[str, str]]  # names and weights, where there is neither text nor image
    picture: str  # SVG of the patches of an image, or nothing
    rivals: Sequence[Rival]
    flip: str


class HeadPanel(NamedTuple):
    """One head, ready to be shown."""

    anchor: str
    name: str  # short
    path: str  # in full
    place: int  # in the ranking, from 1
    numbers: Sequence[tuple[str, str]]
    standing: str
    histogram: str
    groups: Sequence[tuple[str, str]]  # caption and picture
    row: ShownRow | None


def anchor(layer: int, head: int) -> str:
    """The name of a panel in the page."""
    return f"head-{layer}-{head}"


def head_panels(record: Record, short: Mapping[str, str]) -> list[HeadPanel]:
    """Panels of the heads that have rows, the most sensitive first; ``short`` names layers."""
    numbers = {layer.name: place for place, layer in enumerate(record.layers)}
    found = []
    for place, row in enumerate([r for r in record.ranked if r["rows"]][:MOST], start=1):
        number = numbers[row["layer"]]
        layer, h = record.layers[number], row["head"]
        counts = bars(layer.state.histograms["two"][h : h + 1])[0]
        says = f"Histogram of the constants: {summary_of(counts)}"
        found.append(
            HeadPanel(
                anchor(number, h),
                f"{short[layer.name]} head {h}",
                f"{layer_name(layer.name)} head {h}",
                place,
                _numbers(record, row),
                "" if record.quick else _standing(row["mean"]),
                draw_histogram(counts, row["mean"], says),
                _groups(layer, h),
                _shown(record, layer, row),
            )
        )
    return found


def _numbers(record: Record, row: Mapping[str, Any]) -> list[tuple[str, str]]:
    columns = record.columns
    shown = [columns[name] for name in SHOWN if name in columns]
    return [
        (each.words if each.kind in ("exact", "upper") else each.heading, each.text(row[each.name]))
        for each in shown
    ]


def _standing(mean: float) -> str:
    return f"higher than {share_below(mean):.0%} of the heads of trained models"


def _groups(layer: LayerRecord, head: int) -> list[tuple[str, str]]:
    """By number of keys and by position; once only where both are the same, as in causal models."""
    keys, queries = (groups_of_head(layer, head, name) for name in ("keys", "queries"))
    found = []
    if len(keys) > 1:
        found.append(("Mean constant by number of keys", keys))
    causal = [each.mean for each in keys if not each.apart] == [each.mean for each in queries]
    if len(queries) > 1 and not causal:
        found.append(("Mean constant by position of the query", queries))
    return [(caption, draw_groups(groups, _said(caption, groups))) for caption, groups in found]


def _said(caption: str, groups: Sequence[GroupMean]) -> str:
    """The bars in words, for those who do not see them."""
    return f"{caption}: {', '.join(f'{each.mean:.2f} for {each.name}' for each in groups)}"


def _shown(record: Record, layer: LayerRecord, row: Mapping[str, Any]) -> ShownRow | None:
    worst = layer.state.worst[row["head"]]
    if worst is None:
        return None
    grid = patch_grid(worst, record.data.get("image_size")) if record.pictures else None
    if grid is not None:
        picture = f"picture-{row['sample']}" if record.pictures.get(str(row["sample"])) else ""
        named = [
            rival._replace(name=grid.name(worst, key))
            for rival, key in zip(rivals(worst), worst.leading, strict=False)
        ]
        own = grid.place_name(worst.place) if worst.place >= 0 else "a learned token"
        return ShownRow(
            _heading(record), _sentence(worst, row, f"The query, {own},"), [], [],
            draw_patches(worst, grid, picture), named, flip_sentence(worst),
        )  # fmt: skip
    token = f"“{token_shown(row['token']).strip(' ')}”" if row["token"] else ""
    who = f"The query {token} at position {row['query']}" if token else f"Query {row['query']}"
    return ShownRow(
        _heading(record), _sentence(worst, row, who), shown_keys(worst) if worst.tokens else [],
        [] if worst.tokens else heaviest(worst), "", rivals(worst), flip_sentence(worst),
    )  # fmt: skip


def _heading(record: Record) -> str:
    """What the row is: a first look knows bounds only, and a sample is not all rows."""
    if record.quick:
        return "Its row with the largest bound"
    return f"Its most sensitive row{' among those drawn' if record.drawn else ''}"


def _sentence(worst: WorstRow, row: Mapping[str, Any], who: str) -> str:
    where = f" of sample {row['sample']}" if row["sample"] >= 0 else ""
    leading = sum(worst.weight_of(key) for key in worst.leading)
    text = f"{who}{where} sees {worst.seen:,} keys. "
    if worst.seen <= 2:
        return text.strip()
    return (
        f"{text}Two of them have {weight_text(leading)} of the weight together; the other "
        f"{worst.seen - 2:,} share the rest."
    )
