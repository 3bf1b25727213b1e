"""The tables of a report: words and numbers of a record, ready to be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from taut._base.number_text import NONE, number_text
from taut._base.terminal_text import printable
from taut.audit.consequence.columns import RANKED_BY
from taut.audit.statistics.column import Column
from taut.audit.statistics.head_state import BINS
from taut.models import LIMIT

if TYPE_CHECKING:
    from taut.audit.record import Record

Array = np.ndarray[Any, np.dtype[Any]]
BARS = 25  # of a histogram as it is shown: 8 bins of the record each
WORST = 20  # rows that are listed with their tokens


class ReportTable(NamedTuple):
    """A table: the first cell of every row is its heading."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


ELSEWHERE = ("layer", "head", "sample", "query", "token")  # of a head, and of its worst row
COUNTED = ("rows", "skipped", "hidden", "broken")  # known also of heads without rows


def head_name(row: Mapping[str, Any]) -> str:
    """A head of Record.heads in words."""
    return f"{layer_name(row['layer'])} head {row['head']}"


def layer_name(name: str) -> str:
    """The name of a layer, also where the model itself runs the softmax."""
    return printable(name) or "(model)"


def cells_table(caption: str, values: Array, names: Sequence[str], column: Column) -> ReportTable:
    """The numbers of a heat map."""
    rows = [[name, *map(column.text, line)] for name, line in zip(names, values, strict=True)]
    return ReportTable(caption, ["layer", *(f"head {h}" for h in range(values.shape[1]))], rows)


def bars(histograms: Array) -> Array:
    """Histograms (rows, bins) with the fewer bins that are shown."""
    return np.add.reduceat(histograms, range(0, BINS, BINS // BARS), axis=1)


def bars_table(caption: str, counts: Array, names: Sequence[str]) -> ReportTable:
    """The numbers of a figure of distributions."""
    ends = np.linspace(0, LIMIT, BARS + 1)
    columns = [f"{a:.2f} to {b:.2f}" for a, b in pairwise(ends)]
    rows = [[name, *(f"{n:d}" for n in line)] for name, line in zip(names, counts, strict=True)]
    return ReportTable(caption, ["where", *columns], rows)


# Columns that are shown first; the others follow.
FIRST = ("mean", "median_upper", "largest", "near", "entropy", "top", "range", "rows")


def ranked_table(record: Record, short: Mapping[str, str] | None = None) -> ReportTable:
    """Every head with all its numbers; ``short`` are the names of layers that are shown."""
    known = record.columns
    first = [*(name for name in known if name == RANKED_BY), *FIRST]
    names = [*first, *(name for name in known if name not in (*ELSEWHERE, *first))]
    columns = [known[name] for name in names]
    rows = [
        [
            head_name(row) if short is None else f"{short[row['layer']]} head {row['head']}",
            f"{place}",
        ]
        + [
            each.text(row[each.name]) if row["rows"] or each.name in COUNTED else NONE
            for each in columns
        ]
        for place, row in enumerate(record.ranked, start=1)
    ]
    headings = ["head", "place", *(each.heading for each in columns)]
    caption = f"All heads, the most sensitive first: {record.ranking}"
    return ReportTable(caption, headings, rows)


def columns_table(record: Record) -> ReportTable:
    """What the columns of the table of heads are."""
    rows = [
        [each.words, each.kind, each.norm or NONE, each.theorem or NONE, each.meaning]
        for name, each in record.columns.items()
        if name not in ELSEWHERE
    ]
    return ReportTable(
        "What the columns are", ["column", "kind", "norm", "theorem", "meaning"], rows
    )


def logits_table(record: Record) -> ReportTable:
    """The final logits, where they were measured."""
    row, columns = record.predictions, record.columns
    scale = record.settings.get("logits")
    caption = "Softmax of the logits" + (f", λ = {scale:g}" if scale else "")
    if row is None or not row["rows"]:
        return ReportTable(caption, [], [])
    names = ("mean", "largest", "q05_upper", "median_upper", "q95_upper", "mean_1", "largest_1",
             "near", "entropy", "top", "rows", "broken")  # fmt: skip
    shown = [[columns[name].heading, columns[name].text(row[name])] for name in names]
    return ReportTable(caption, ["number", "value"], shown)


def worst_table(record: Record) -> ReportTable:
    """The rows with the largest constants: one for each head, with its token."""
    heads = [row for row in record.heads if row["rows"]]
    kind = "upper" if record.quick else "exact"
    rows = [
        [head_name(row), number_text(row["largest"], kind=kind)]
        + [f"{row[key]}" if row[key] >= 0 else NONE for key in ("sample", "query")]
        + [repr(row["token"]) if row["token"] else NONE]
        for row in sorted(heads, key=lambda row: -row["largest"])[:WORST]
    ]
    columns = ["head", f"constant in l2 ({kind})", "sample", "query", "token"]
    among = " among those drawn" if record.drawn else ""
    caption = f"The most sensitive row of each head{among}, the largest constants first"
    return ReportTable(caption, columns, rows)


def facts_table(caption: str, facts: Mapping[str, Any]) -> ReportTable:
    """Names and values: of the model, the data, the settings."""
    return ReportTable(
        caption, ["name", "value"], [[key, _fact(value)] for key, value in facts.items()]
    )


def _fact(value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return f"{value:,}" if type(value) is int else f"{value}"


def grid_table(record: Record) -> ReportTable:
    """Empirical constants of Nair (2025): the largest over the rows that were sampled."""
    rows: list[list[str]] = []
    columns = ["layer and step size"]
    for layer in record.layers:
        grid = layer.grid
        if grid is None or not grid.rows:
            continue
        columns = [columns[0], *(f"l{p:g}" for p in grid.norms), "rows"]
        for i, epsilon in enumerate(grid.epsilons):
            cells = zip(grid.random[i], grid.worst[i], strict=True)
            shown = [" / ".join(number_text(v, kind="lower") for v in pair) for pair in cells]
            label = f"{layer_name(layer.name)}, {epsilon:g} (lower)"
            rows.append([label, *shown, str(grid.rows)])
        most = [number_text(upper, kind="upper") for upper in grid.upper]
        label = f"{layer_name(layer.name)}, local constant (upper)"
        rows.append([label, *most, str(grid.rows)])
    return ReportTable(
        "Empirical constants, measured: along random / along worst directions", columns, rows
    )
