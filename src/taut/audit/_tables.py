"""The tables of a report: words and numbers of a record, ready to be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from taut._text import printable
from taut.audit._head_state import BINS, LIMIT
from taut.audit._record import Record

Array = np.ndarray[Any, np.dtype[Any]]
BARS = 25  # of a histogram as it is shown: 8 bins of the record each
WORST = 20  # rows that are listed with their tokens
NONE = "–"


class Table(NamedTuple):
    """A table: the first cell of every row is its heading."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


# Columns of the ranked table: heading, key in Record.heads, format.
COLUMNS = (
    ("mean", "mean", ".4f"),
    ("largest", "largest", ".4f"),
    ("5 % ≤", "q05", ".4f"),
    ("median ≤", "median", ".4f"),
    ("95 % ≤", "q95", ".4f"),
    ("mean in l1, l∞", "mean_1", ".4f"),
    ("largest in l1, l∞", "largest_1", ".4f"),
    ("rows near ½", "near", ".1%"),
    ("rows above the threshold", "above", ".1%"),
    ("entropy", "entropy", ".4f"),
    ("evenness", "evenness", ".4f"),
    ("largest weight", "top", ".4f"),
    ("weight of first key", "first", ".4f"),
    ("range of scores", "range", ".5g"),
    ("affinity bound", "affinity", ".4g"),
    ("rows", "rows", "d"),
    ("rows that see nothing", "hidden", "d"),
    ("broken rows", "broken", "d"),
)
COUNTED = ("rows", "hidden", "broken")  # known also of heads without rows


def head_name(row: Mapping[str, Any]) -> str:
    """A head of Record.heads in words."""
    return f"{layer_name(row['layer'])} head {row['head']}"


def layer_name(name: str) -> str:
    """The name of a layer, also where the model itself runs the softmax."""
    return printable(name) or "(model)"


def number(value: float, form: str = ".4f") -> str:
    """A number, or a dash where nothing was measured."""
    return format(value, form) if np.isfinite(value) else NONE


def cells_table(caption: str, values: Array, names: Sequence[str]) -> Table:
    """The numbers of a heat map."""
    rows = [[name, *map(number, line)] for name, line in zip(names, values, strict=True)]
    return Table(caption, ["layer", *(f"head {h}" for h in range(values.shape[1]))], rows)


def bars(histograms: Array) -> Array:
    """Histograms (rows, bins) with the fewer bins that are shown."""
    return np.add.reduceat(histograms, range(0, BINS, BINS // BARS), axis=1)


def bars_table(caption: str, counts: Array, names: Sequence[str]) -> Table:
    """The numbers of a figure of distributions."""
    ends = np.linspace(0, LIMIT, BARS + 1)
    columns = [f"{a:.2f} to {b:.2f}" for a, b in pairwise(ends)]
    rows = [[name, *(f"{n:d}" for n in line)] for name, line in zip(names, counts, strict=True)]
    return Table(caption, ["where", *columns], rows)


def ranked_table(record: Record) -> Table:
    """Every head with all its numbers."""
    rows = [
        [head_name(row), f"{place}"]
        + [
            number(row[key], form) if row["rows"] or key in COUNTED else NONE
            for _, key, form in COLUMNS
        ]
        for place, row in enumerate(record.ranked, start=1)
    ]
    columns = ["head", "place", *(heading for heading, _, _ in COLUMNS)]
    return Table("All heads, the most sensitive first: by their mean constant in l2", columns, rows)


def logits_table(record: Record) -> Table:
    """The final logits, where they were measured."""
    row = record.predictions
    scale = record.settings.get("logits")
    caption = "Softmax of the logits" + (f", λ = {scale:g}" if scale else "")
    if row is None or not row["rows"]:
        return Table(caption, [], [])
    names = ("mean", "largest", "5 % ≤", "median ≤", "95 % ≤", "mean in l1, l∞",
             "largest in l1, l∞", "rows near ½", "entropy", "largest weight", "rows",
             "broken rows")  # fmt: skip
    known = {heading: number(row[key], form) for heading, key, form in COLUMNS}
    return Table(caption, ["number", "value"], [[name, known[name]] for name in names])


def worst_table(record: Record) -> Table:
    """The rows with the largest constants: one for each head, with its token."""
    heads = [row for row in record.heads if row["rows"]]
    rows = [
        [head_name(row), number(row["largest"])]
        + [f"{row[key]}" if row[key] >= 0 else NONE for key in ("sample", "query")]
        + [repr(row["token"]) if row["token"] else NONE]
        for row in sorted(heads, key=lambda row: -row["largest"])[:WORST]
    ]
    columns = ["head", "constant in l2", "sample", "query", "token"]
    return Table("The most sensitive row of each head, the largest constants first", columns, rows)


def facts_table(caption: str, facts: Mapping[str, Any]) -> Table:
    """Names and values: of the model, the data, the settings."""
    return Table(caption, ["name", "value"], [[key, _fact(value)] for key, value in facts.items()])


def _fact(value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return f"{value:,}" if type(value) is int else f"{value}"


def grid_table(record: Record) -> Table:
    """S1's empirical constants: the largest over the rows that were sampled."""
    rows: list[list[str]] = []
    columns = ["layer and step size"]
    for layer in record.layers:
        grid = layer.grid
        if grid is None or not grid.rows:
            continue
        columns = [columns[0], *(f"l{p:g}" for p in grid.norms), "rows"]
        for i, epsilon in enumerate(grid.epsilons):
            cells = zip(grid.random[i], grid.worst[i], strict=True)
            shown = [f"{random:.4f} / {worst:.4f}" for random, worst in cells]
            rows.append([f"{layer_name(layer.name)}, {epsilon:g}", *shown, str(grid.rows)])
        most = [f"at most {upper:.4f}" for upper in grid.upper]
        rows.append([f"{layer_name(layer.name)}, local constant", *most, str(grid.rows)])
    return Table("Empirical constants: along random / along worst directions", columns, rows)
