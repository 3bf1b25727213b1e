"""The figures of a report: heat maps and distributions, each with its words and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taut.audit.report.layer_names import short_layer_names
from taut.audit.report.svg import draw_bars, draw_cells
from taut.audit.report.tables import (
    Array,
    ReportTable,
    bars,
    bars_table,
    cells_table,
    head_name,
    layer_name,
)
from taut.audit.statistics.column import Column
from taut.models import LIMIT

if TYPE_CHECKING:
    from taut.audit.record import Record

MOST = 10  # heads whose distributions are shown


class Figure(NamedTuple):
    """A picture, its words and its numbers."""

    title: str
    meaning: str
    picture: str  # SVG
    table: ReportTable


# What a heat map shows of each head, and the end of its colours; the largest value if None.
QUANTITIES = (
    ("mean", "Mean constant in l2", LIMIT),
    ("largest", "Largest constant in l2", LIMIT),
    ("mean_1", "Mean constant in l1 and l∞", LIMIT),
    ("largest_1", "Largest constant in l1 and l∞", LIMIT),
    ("entropy", "Entropy", None),
    ("evenness", "Evenness", 1.0),
    ("top", "Largest weight", 1.0),
    ("first", "Weight of the first key", 1.0),
    ("affinity_upper", "Affinity bound", None),
)


# Where it was estimated.
CONSEQUENCES = (
    ("kl_scores", "Consequence of noise on scores", None),
    ("kl_keys", "Consequence of noise on keys", None),
    ("kl_values", "Consequence of noise on values", None),
)


def heat_maps(record: Record) -> list[Figure]:
    """Layers x heads, one figure for each quantity; the mean constant in l2 first."""
    if not record.layers:
        return []
    names, columns = [layer_name(layer.name) for layer in record.layers], record.columns
    first, *others = QUANTITIES
    there = CONSEQUENCES if record.has_consequence else ()
    return [
        _heat_map(title, end, columns[key], _cells(record, key), names)
        for key, title, end in (first, *there, *others)
    ]


def _cells(record: Record, key: str) -> Array:
    """One number of every head, (layers, heads); NaN where there is no head or no row."""
    sizes = [layer.state.heads for layer in record.layers]
    values = np.full((len(sizes), max(sizes)), np.nan)
    there = np.arange(max(sizes)) < np.array(sizes)[:, None]
    values[there] = [row[key] if row["rows"] else np.nan for row in record.heads]
    return np.where(np.isinf(values), np.nan, values)


def _heat_map(
    title: str, end: float | None, column: Column, values: Array, names: list[str]
) -> Figure:
    known = values[np.isfinite(values)]
    most = end or float(known.max(initial=0.0)) or 1.0
    says = f"Heat map, {title} ({column.kind}): {len(values)} layers, {values.shape[1]} heads"
    if known.size:
        form = column.form if column.kind == "estimate" else ".4f"
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        says += (
            f"; from {known.min():{form}} to {column.text(known.max(), form)}, the most in "
            f"{names[layer]} head {head}"
        )
    picture = draw_cells(
        values, short_layer_names(names), title=says, end=most, limit=end == LIMIT, text=column.text
    )
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
