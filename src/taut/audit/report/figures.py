"""The figures of a report: heat maps and distributions, each with its words and its table."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taut.audit.few_keys import FEW_KEYS
from taut.audit.report.layer_names import short_layer_names
from taut.audit.report.row_groups import groups_of_model
from taut.audit.report.svg import draw_bars
from taut.audit.report.svg_cells import draw_cells, fitted_scale
from taut.audit.report.svg_small import draw_groups
from taut.audit.report.tables import (
    Array,
    ReportTable,
    bars,
    bars_table,
    cells_table,
    head_name,
    layer_name,
)

if TYPE_CHECKING:
    from taut.audit.record import Record

MOST = 10  # heads whose distributions are shown


class Figure(NamedTuple):
    """A picture, its words and its numbers."""

    title: str
    meaning: str
    picture: str  # SVG
    table: ReportTable


SENSITIVE = ("less sensitive", "more sensitive")
# What a heat map shows of each head, with the words at the ends of its scale.
QUANTITIES = (
    ("mean", "Mean constant in l2", SENSITIVE),
    ("largest", "Largest constant in l2", SENSITIVE),
    ("near", "Share of rows near the limit", SENSITIVE),
    ("mean_1", "Mean constant in l1 and l∞", SENSITIVE),
    ("largest_1", "Largest constant in l1 and l∞", SENSITIVE),
    ("entropy", "Entropy", ("one key", "many keys")),
    ("evenness", "Evenness", ("one key", "all alike")),
    ("top", "Largest weight", ("many keys", "one key")),
    ("first", "Weight of the first key", ("low", "sink")),
    ("range", "Range of scores", ("low", "high")),
    ("affinity_upper", "Affinity bound", ("low", "high")),
)
CONSTANTS = ("mean", "largest", "mean_1", "largest_1")  # which have the limit ½


# Where it was estimated.
CONSEQUENCES = (
    ("kl_scores", "Consequence of noise on scores", ("unheard", "heard")),
    ("kl_keys", "Consequence of noise on keys", ("unheard", "heard")),
    ("kl_values", "Consequence of noise on values", ("unheard", "heard")),
)


class MapLinks(NamedTuple):
    """What the first heat map leads to, and which of its cells have a dot."""

    link: Callable[[int, int], str]
    marked: Collection[tuple[int, int]]


def heat_maps(record: Record, links: MapLinks | None = None) -> list[Figure]:
    """Layers x heads, one figure for each quantity; the mean constant in l2 first."""
    if not record.layers:
        return []
    first, *others = QUANTITIES
    there = CONSEQUENCES if record.has_consequence else ()
    return [
        _heat_map(record, key, title, words, links if key == first[0] else None)
        for key, title, words in (first, *there, *others)
    ]


def _cells(record: Record, key: str) -> Array:
    """One number of every head, (layers, heads); NaN where there is no head or no row."""
    sizes = [layer.state.heads for layer in record.layers]
    values = np.full((len(sizes), max(sizes)), np.nan)
    there = np.arange(max(sizes)) < np.array(sizes)[:, None]
    values[there] = [row[key] if row["rows"] else np.nan for row in record.heads]
    return np.where(np.isinf(values), np.nan, values)


def _heat_map(
    record: Record, key: str, title: str, words: tuple[str, str], links: MapLinks | None
) -> Figure:
    names, column = [layer_name(layer.name) for layer in record.layers], record.columns[key]
    values = _cells(record, key)
    known = values[np.isfinite(values)]
    says = f"Heat map, {title} ({column.kind}): {len(values)} layers, {values.shape[1]} heads"
    if known.size:
        form = column.form if column.kind == "estimate" else ".4f"
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        says += (
            f"; from {known.min():{form}} to {column.text(known.max(), form)}, the most in "
            f"{names[layer]} head {head}"
        )
    picture = draw_cells(
        values, short_layer_names(names), title=says,
        scale=fitted_scale(values, words, limit=key in CONSTANTS), text=column.text,
        link=None if links is None else links.link,
        marked=() if links is None else links.marked, full=names,
    )  # fmt: skip
    named = f"{title} ({column.kind})"
    meaning = f"{column.meaning[0].upper()}{column.meaning[1:]}."
    return Figure(named, meaning, picture, cells_table(named, values, names, column))


def distributions(record: Record) -> list[Figure]:
    """Of every layer, and of the heads that are most sensitive."""
    states = {layer.name: layer.state for layer in record.layers}
    most = [row for row in record.ranked if row["rows"]][:MOST]
    if not most:
        return []
    names = [layer_name(name) for name in states]
    short = dict(zip(states, short_layer_names(names), strict=True))
    layers = np.array([state.histograms["two"].sum(axis=0) for state in states.values()])
    heads = np.array([states[row["layer"]].histograms["two"][row["head"]] for row in most])
    kind = "upper bound" if record.quick else "exact constant"
    return [
        _bars("Every layer", layers, names, list(short.values()), kind),
        _bars(
            f"The {len(most)} most sensitive heads",
            heads,
            [head_name(row) for row in most],
            [f"{short[row['layer']]} head {row['head']}" for row in most],
            kind,
        ),
    ]


def _bars(title: str, histograms: Array, names: list[str], labels: list[str], kind: str) -> Figure:
    counts = bars(histograms)
    says = (
        f"Histograms of constants in l2, with the limit 1/2: {title.lower()}, {len(labels)} lines"
    )
    picture = draw_bars(counts, labels, title=says)
    meaning = f"Number of rows by their {kind}; each line is scaled to its own highest bar."
    return Figure(title, meaning, picture, bars_table(f"Rows by constant: {title}", counts, names))


def groups(record: Record) -> list[Figure]:
    """Mean constants of all heads together, by number of keys and by position."""
    found = []
    for name, title, meaning in (
        ("keys", "Mean constant by number of keys", f"Rows with fewer than {FEW_KEYS} keys, paler, "
         "are kept apart from all other numbers. 8+ stands for 8 to 15, and so on."),
        ("queries", "Mean constant by position of the query", "The first query is 1. 8+ stands for "
         "8 to 15, and so on."),
    ):  # fmt: skip
        there = groups_of_model(record, name)
        if len(there) < 2:
            continue
        rows = [[each.name, f"{each.mean:.4f}", f"{each.rows:,}"] for each in there]
        what = "keys" if name == "keys" else "position"
        table = ReportTable(title, [what, "mean constant", "rows"], rows)
        says = f"{title}: " + ", ".join(f"{each.name} {each.mean:.3f}" for each in there)
        found.append(Figure(title, meaning, draw_groups(there, says), table))
    return found
