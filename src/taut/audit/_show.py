"""Records on the terminal."""

from __future__ import annotations

import math
from typing import Any

from taut._text import cells, say, shortened
from taut.audit._findings import LOOKED_FOR, findings
from taut.audit._head_state import series
from taut.audit._names import pattern, short_names
from taut.audit._record import Record


def show(record: Record, lines: int) -> None:
    """The record on the terminal: layers, the most sensitive heads, findings."""
    from rich.console import Console

    console = Console()
    state = "" if record.complete else " (partial)"
    say(f"{record.model.get('name', 'model')}: {record.samples} samples{state}.")
    for line in data_lines(record.data):
        say(line)
    say("Softmax is 1/2-Lipschitz in l2: no constant below can be larger.")
    full = [layer.name for layer in record.layers]
    names = dict(zip(full, short_names(full), strict=True))
    if pattern(full):
        say(f"Layers are {pattern(full)}")
    if record.layers:
        console.print(_layers(record, names))
        console.print(_heads(record, names, lines))
    for line in (_norms(record), _predictions(record)):
        if line:
            say(line)
    if any(layer.grid is not None and layer.grid.rows for layer in record.layers):
        console.print(_grid(record))
    found = findings(record)
    for finding in found:
        say(f"- {finding.text} {finding.advice}".rstrip())
    if not found:
        say(f"Nothing stands out. Looked for: {LOOKED_FOR}")


def data_lines(data: dict[str, Any]) -> list[str]:
    """What the data were and what became of them, in sentences."""
    kind, samples = data.get("kind"), data.get("samples")
    if not kind:
        return []
    column = f", column {data['column']!r}" if data.get("column") else ""
    lines = [f"Data: {samples} samples ({kind}) from {data.get('source')}{column}."]
    if data.get("truncated"):
        lines.append(
            f"{data['truncated']} of them were cut to {data.get('max_length')} {data.get('unit')}; "
            f"the longest has {data.get('longest')}."
        )
    if data.get("image_size"):
        lines.append(f"The model got them at {' × '.join(map(str, data['image_size']))} pixels.")
    notes = data.get("notes")
    return lines + [f"Note: {note}" for note in (notes if isinstance(notes, list) else [])]


def _layers(record: Record, names: dict[str, str]) -> Any:
    from rich.table import Table

    threshold = record.layers[0].state.threshold if record.layers else 0.0
    table = Table("layer", title="Exact local constants in l2, by layer")
    for head in ("mean", "largest", f"≥ {threshold:g}", "entropy", "top", "range", "affinity"):
        table.add_column(head, justify="right")
    for layer in record.layers:
        rows = [r for r in record.heads if r["layer"] == layer.name and r["rows"]]
        (first,) = cells(names[layer.name])
        if not rows:
            table.add_row(first, *["-"] * 7)
            continue
        mean = {k: sum(r[k] for r in rows) / len(rows) for k in ("mean", "above", "entropy", "top")}
        bound = max(r["affinity"] for r in rows)
        table.add_row(
            first, f"{mean['mean']:.3f}", f"{max(r['largest'] for r in rows):.3f}",
            f"{mean['above']:.1%}", f"{mean['entropy']:.2f}", f"{mean['top']:.2f}",
            f"{max(r['range'] for r in rows):.1f}", "-" if math.isinf(bound) else f"{bound:.3g}",
        )  # fmt: skip
    return table


def _norms(record: Record) -> str:
    """The largest constants of all rows in every norm, in a line."""
    states = [layer.state for layer in record.layers if layer.state.counts["rows"].any()]
    if not states:
        return ""
    parts = [
        f"l{p:g} at most {max(state.maxima[series(p)].max() for state in states):.4f}"
        for p in states[0].norms
    ]
    exact = {what: max(state.maxima[what].max() for state in states) for what in ("one", "two")}
    first = f"l1 and linf {exact['one']:.4f}, l2 {exact['two']:.4f} (exact)"
    return f"Largest of all rows: {', '.join([first, *parts])}."


def _predictions(record: Record) -> str:
    """The final logits in a line."""
    row = record.predictions
    if row is None or not row["rows"]:
        return ""
    scale = record.settings.get("logits") or 1.0
    return (
        f"Final logits times {scale:g}, {row['rows']} rows: mean {row['mean']:.3f}, largest "
        f"{row['largest']:.4f} (sample {row['sample']}, row {row['query']}), {row['above']:.1%} "
        f"above the threshold, largest probability {row['top']:.2f} on average. With respect to "
        f"the logits themselves: {scale:g} times as much."
    )


def _grid(record: Record) -> Any:
    """S1's table: the largest of all layers."""
    from rich.table import Table

    grids = [layer.grid for layer in record.layers if layer.grid is not None]
    rows = sum(grid.rows for grid in grids)
    title = f"Empirical constants of {rows} rows: random / worst directions"
    table = Table("step", title=title)
    first = grids[0]
    for p in first.norms:
        table.add_column(f"l{p:g}", justify="right")
    for i, epsilon in enumerate(first.epsilons):
        cells = [
            f"{max(g.random[i, j] for g in grids):.3f} / {max(g.worst[i, j] for g in grids):.3f}"
            for j in range(len(first.norms))
        ]
        table.add_row(f"{epsilon:g}", *cells)
    upper = [f"{max(g.upper[j] for g in grids):.3f}" for j in range(len(first.norms))]
    table.add_row("local, up to", *upper)
    return table


def _heads(record: Record, names: dict[str, str], lines: int) -> Any:
    from rich.table import Table

    table = Table(
        "layer", "head", "mean", "median ≤", "largest", "where", title="The most sensitive"
    )
    for row in [row for row in record.ranked if row["rows"]][:lines]:
        where = f"sample {row['sample']}, query {row['query']} {shortened(row['token'], 40)}"
        shown = [names[row["layer"]], str(row["head"]), f"{row['mean']:.3f}"]
        shown += [f"{row['median']:.4f}", f"{row['largest']:.4f}", where]
        table.add_row(*cells(*shown))
    return table
