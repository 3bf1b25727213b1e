"""The figures of a report: what is drawn of a record, in which words, and the table beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut.audit._head_state import LIMIT
from taut.audit._names import short_names
from taut.audit._record import Record
from taut.audit._svg import draw_bars, draw_cells
from taut.audit._tables import (
    Array,
    Table,
    bars,
    bars_table,
    cells_table,
    head_name,
    layer_name,
)

MOST = 10  # heads whose distributions are shown


class Quantity(NamedTuple):
    """What a heat map shows of each head."""

    key: str  # in Record.heads
    title: str
    meaning: str
    end: float | None  # of the scale of colours; the largest value where None


class Figure(NamedTuple):
    """A picture, its words and its numbers."""

    title: str
    meaning: str
    picture: str  # SVG
    table: Table


QUANTITIES = (
    Quantity("mean", "Mean constant in l2", "Of an average row of the head.", LIMIT),
    Quantity("largest", "Largest constant in l2", "Of the most sensitive row seen.", LIMIT),
    Quantity(
        "mean_1",
        "Mean constant in l1 and l∞",
        "The same in both norms, as the Jacobian is symmetric.",
        LIMIT,
    ),
    Quantity(
        "largest_1", "Largest constant in l1 and l∞", "Of the most sensitive row seen.", LIMIT
    ),
    Quantity("entropy", "Entropy", "Of the weights, in nats; mean over the rows.", None),
    Quantity(
        "evenness", "Evenness", "Entropy as a share of its maximum: 1 is all keys alike.", 1.0
    ),
    Quantity("top", "Largest weight", "Mean over the rows: 1 is one key only.", 1.0),
    Quantity("first", "Weight of the first key", "Mean over the rows; an attention sink.", 1.0),
    Quantity(
        "affinity",
        "Affinity bound",
        "Change of the weights in l2 for a change of the query by 1, at most; whatever the mask.",
        None,
    ),
)


def heat_maps(record: Record) -> list[Figure]:
    """Layers x heads, one figure for each quantity; the mean constant in l2 first."""
    if not record.layers:
        return []
    names = [layer_name(layer.name) for layer in record.layers]
    return [_heat_map(quantity, _cells(record, quantity.key), names) for quantity in QUANTITIES]


def _cells(record: Record, key: str) -> Array:
    """One number of every head, (layers, heads); NaN where there is no head or no row."""
    sizes = [layer.state.heads for layer in record.layers]
    values = np.full((len(sizes), max(sizes)), np.nan)
    there = np.arange(max(sizes)) < np.array(sizes)[:, None]
    values[there] = [row[key] if row["rows"] else np.nan for row in record.heads]
    return np.where(np.isinf(values), np.nan, values)


def _heat_map(quantity: Quantity, values: Array, names: list[str]) -> Figure:
    known = values[np.isfinite(values)]
    end = quantity.end or float(known.max(initial=0.0)) or 1.0
    title = f"Heat map, {quantity.title}: {len(values)} layers, {values.shape[1]} heads"
    if known.size:
        layer, head = np.unravel_index(np.nanargmax(values), values.shape)
        title += (
            f"; from {known.min():.4f} to {known.max():.4f}, the most in {names[layer]} head {head}"
        )
    picture = draw_cells(
        values, short_names(names), title=title, end=end, limit=quantity.end == LIMIT
    )
    table = cells_table(quantity.title, values, names)
    return Figure(quantity.title, quantity.meaning, picture, table)


def distributions(record: Record) -> list[Figure]:
    """Of every layer, and of the heads that are most sensitive."""
    states = {layer.name: layer.state for layer in record.layers}
    most = [row for row in record.ranked if row["rows"]][:MOST]
    if not most:
        return []
    names = [layer_name(name) for name in states]
    short = dict(zip(states, short_names(names), strict=True))
    layers = np.array([state.histograms["two"].sum(axis=0) for state in states.values()])
    heads = np.array([states[row["layer"]].histograms["two"][row["head"]] for row in most])
    return [
        _bars("Every layer", layers, names, list(short.values())),
        _bars(
            f"The {len(most)} most sensitive heads",
            heads,
            [head_name(row) for row in most],
            [f"{short[row['layer']]} head {row['head']}" for row in most],
        ),
    ]


def _bars(title: str, histograms: Array, names: list[str], labels: list[str]) -> Figure:
    counts = bars(histograms)
    says = (
        f"Histograms of constants in l2, with the limit 1/2: {title.lower()}, {len(labels)} lines"
    )
    picture = draw_bars(counts, labels, title=says)
    meaning = "How many rows have which constant; each line is scaled to its own highest bar."
    return Figure(title, meaning, picture, bars_table(f"Rows by constant: {title}", counts, names))
