"""Records on the terminal."""

from __future__ import annotations

import math
from typing import Any

from taut._base.number_text import number_text
from taut._base.terminal_text import cells, say, shortened
from taut.audit import (
    LARGER_STEPS,
    Record,
    consequence_sentence,
    coverage_sentences,
    data_sentences,
    findings,
    layer_pattern,
    made_sentence,
    short_layer_names,
    shown_rows,
    verdict,
)
from taut.models import constant_key


def show_record(record: Record, lines: int) -> None:
    """Print a record: its layers, the most sensitive heads and what stands out."""
    from rich.console import Console

    console = Console()
    state = "" if record.complete else " (partial)"
    if record.shard is not None:
        state = f" ({record.shard}{'' if record.shard.complete else ', partial'})"
    say(f"{record.model.get('name', 'model')}: {record.samples} samples{state}.")
    say(verdict(record))
    made = made_sentence(record.made)
    for line in (*data_sentences(record.data), made, *coverage_sentences(record)):
        if line:
            say(line)
    say(
        "A constant says how far the weights of a row move, at most, for a small change of its "
        "scores. Softmax is ½-Lipschitz in every l_p norm: no row has a larger one."
    )
    full = [layer.name for layer in record.layers]
    names = dict(zip(full, short_layer_names(full), strict=True))
    if layer_pattern(full):
        say(f"Layers are {layer_pattern(full)}")
    if record.layers:
        console.print(_layers(record, names))
        say(COLUMNS)
        console.print(_heads(record, names, lines))
    for line in (_norms(record), consequence_sentence(record), _predictions(record)):
        if line:
            say(line)
    if any(layer.grid is not None and layer.grid.rows for layer in record.layers):
        console.print(_grid(record))
        say(LARGER_STEPS)
    found = findings(record)
    for finding in found:
        say(f"- {finding.text} {finding.advice}".rstrip())
    if not found:
        say(f"Nothing stands out. Looked for: {found.looked_for}")


# Words and formats that are shorter than in the report: a terminal is narrow.
SHORT = {"mean": ("mean", ".3f"), "largest": ("largest", ".3f"), "above": ("≥ {:g}", ".1%"),
         "entropy": ("entropy", ".2f"), "top": ("top weight", ".2f"), "range": ("range", ".1f"),
         "affinity_upper": ("affinity", ".3g")}  # fmt: skip


COLUMNS = (
    "A layer has the means of its heads, and the largest of them for largest, range and affinity. "
    "Entropy is in nats, top weight the largest weight of a row, and range how far two scores of "
    "a row lie apart. The weights move by at most affinity for each unit of the query."
)
_KINDS = "exact, unless a column says otherwise"


def _layers(record: Record, names: dict[str, str]) -> Any:
    from rich.table import Table

    columns = record.columns
    table = Table("layer", title=f"Constants in l2 by layer: {_KINDS}")
    threshold = record.layers[0].state.threshold if record.layers else 0.0
    for name, (words, _) in SHORT.items():
        kind = columns[name].kind
        label = words.format(threshold)
        table.add_column(label if kind == "exact" else f"{label} ({kind})", justify="right")
    for layer in record.layers:
        rows = [r for r in record.heads if r["layer"] == layer.name and r["rows"]]
        (first,) = cells(names[layer.name])
        texts = [columns[n].text(_of_layer(rows, n), form) for n, (_, form) in SHORT.items()]
        table.add_row(first, *texts)
    return table


def _of_layer(rows: list[dict[str, Any]], name: str) -> float:
    """One number of a layer: the largest of its heads, or their mean."""
    values = [float(row[name]) for row in rows]
    if not values:
        return math.nan
    if name in ("largest", "range", "affinity_upper"):
        return max(values)
    return sum(values) / len(values)


def _norms(record: Record) -> str:
    """The largest constants of all rows in every norm, in a line."""
    states = [layer.state for layer in record.layers if layer.state.counts["rows"].any()]
    if not states:
        return ""
    exact = {what: max(state.maxima[what].max() for state in states) for what in ("one", "two")}
    kind = record.columns["largest"].kind
    one, two = (number_text(exact[what], kind=kind) for what in ("one", "two"))
    first = f"l1 and linf {one}, l2 {two} ({kind})"
    parts = []
    for p in states[0].norms:
        most = max(state.maxima[constant_key(p)].max() for state in states)
        parts.append(f"l{p:g} at most {number_text(most, kind='upper')} (upper)")
    return f"Largest of {shown_rows(record)}: {', '.join([first, *parts])}."


def _predictions(record: Record) -> str:
    """The final logits in a line."""
    row = record.predictions
    if row is None or not row["rows"]:
        return ""
    scale = record.settings.get("logits") or 1.0
    mean, largest = (
        f"{record.columns[name].text(row[name])} ({record.columns[name].kind})"
        for name in ("mean", "largest")
    )
    return (
        f"Final logits times {scale:g}, {row['rows']} rows: mean {mean}, largest {largest} "
        f"in sample {row['sample']}, row {row['query']}, {row['above']:.1%} "
        f"above the threshold, largest probability {row['top']:.2f} on average. With respect to "
        f"the logits themselves: {scale:g} times as much."
    )


def _grid(record: Record) -> Any:
    """Empirical constants of Nair (2025): the largest of all layers."""
    from rich.table import Table

    grids = [layer.grid for layer in record.layers if layer.grid is not None]
    rows = sum(grid.rows for grid in grids)
    title = f"Empirical constants of {rows} rows: random / worst directions (lower)"
    table = Table("step", title=title)
    first = grids[0]
    for p in first.norms:
        table.add_column(f"l{p:g}", justify="right")
    for i, epsilon in enumerate(first.epsilons):
        texts = []
        for j in range(len(first.norms)):
            most = (max(g.random[i, j] for g in grids), max(g.worst[i, j] for g in grids))
            texts.append(" / ".join(number_text(value, ".3f", "lower") for value in most))
        table.add_row(f"{epsilon:g}", *texts)
    upper = [max(g.upper[j] for g in grids) for j in range(len(first.norms))]
    table.add_row("local ≤", *(number_text(value, ".3f", "upper") for value in upper))
    return table


def _heads(record: Record, names: dict[str, str], lines: int) -> Any:
    from rich.table import Table

    columns = record.columns
    shown = ["mean", "median_upper", "largest"]
    shown += ["kl_scores"] if record.has_consequence else []
    kinds = [columns[name] for name in shown]
    # What a column is stands below its name: tokens need the width.
    headings = [c.words if c.kind == "exact" else f"{c.words}\n({c.kind})" for c in kinds]
    title = f"The most sensitive heads, {record.ranking}; constants in l2, {_KINDS}"
    table = Table("layer", "head", *headings, "where", title=title)
    for row in [row for row in record.ranked if row["rows"]][:lines]:
        token = f" “{shortened(row['token'], 40)}”" if row["token"] else ""
        where = f"sample {row['sample']}, query {row['query']}{token}"
        texts = [columns[name].text(row[name]) for name in shown]
        table.add_row(*cells(names[row["layer"]], str(row["head"]), *texts, where))
    return table
