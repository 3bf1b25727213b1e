"""Records on the terminal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from taut._json import LARGEST
from taut.audit._compare import compare
from taut.audit._findings import findings
from taut.audit._head_state import series
from taut.audit._names import pattern, short_names
from taut.audit._parse import count, facts, read_record
from taut.audit._record import VERSION, Record


def show(record: Record, lines: int) -> None:
    """The record on the terminal: layers, the most sensitive heads, findings."""
    from rich.console import Console

    console = Console()
    state = "" if record.complete else " (partial)"
    print(f"{record.model.get('name', 'model')}: {record.samples} samples{state}.")
    print("Softmax is 1/2-Lipschitz in l2: no constant below can be larger.")
    full = [layer.name for layer in record.layers]
    names = dict(zip(full, short_names(full), strict=True))
    if pattern(full):
        print(f"Layers are {pattern(full)}")
    if record.layers:
        console.print(_layers(record, names))
        console.print(_heads(record, names, lines))
    for line in (_norms(record), _predictions(record)):
        if line:
            print(line)
    if any(layer.grid is not None and layer.grid.rows for layer in record.layers):
        console.print(_grid(record))
    for finding in findings(record):
        print(f"- {finding.text} {finding.advice}".rstrip())


def _layers(record: Record, names: dict[str, str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    threshold = record.layers[0].state.threshold if record.layers else 0.0
    table = Table("layer", title="Exact local constants in l2, by layer")
    for head in ("mean", "largest", f"≥ {threshold:g}", "entropy", "top", "range", "affinity"):
        table.add_column(head, justify="right")
    for layer in record.layers:
        rows = [r for r in record.heads if r["layer"] == layer.name and r["rows"]]
        first = Text(names[layer.name])
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
    from rich.text import Text

    table = Table("layer", "head", "mean", "median", "largest", "where", title="The most sensitive")
    for row in [row for row in record.ranked if row["rows"]][:lines]:
        where = f"sample {row['sample']}, query {row['query']} {row['token']}"
        cells = [names[row["layer"]], str(row["head"]), f"{row['mean']:.3f}"]
        cells += [f"{row['median']:.3f}", f"{row['largest']:.4f}", where]
        table.add_row(*map(Text, cells))
    return table


def compared(files: list[Path], lines: int, *, as_json: bool) -> None:
    """Records side by side: all heads as JSON, or those that changed most as a table."""
    records = [Record.load(file) for file in files]
    heads = compare(*records)
    if as_json:
        found = [{**head._asdict(), "change": head.change} for head in heads]
        print(json.dumps({"records": [str(file) for file in files], "heads": found}))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for file, record in zip(files, records, strict=True):
        rows = [row for row in record.heads if row["rows"]]
        mean = sum(row["mean"] for row in rows) / max(len(rows), 1)
        name = record.model.get("name", "model")
        print(f"{file}: {name}, mean constant {mean:.4f} over {len(rows)} heads")
    full = list(dict.fromkeys(head.layer for head in heads))
    names = dict(zip(full, short_names(full), strict=True))
    if pattern(full):
        print(f"Layers are {pattern(full)}")
    table = Table("layer", "head", title="Mean constants in l2, largest change first")
    for file in files:
        table.add_column(Text(file.stem), justify="right")
    table.add_column("change", justify="right")
    for head in sorted(heads, key=lambda head: -abs(head.change))[:lines]:
        means = ["-" if mean is None else f"{mean:.4f}" for mean in head.means]
        table.add_row(Text(names[head.layer]), str(head.head), *means, f"{head.change:+.4f}")
    Console().print(table)


def listed(folder: Path) -> None:
    """The records in a folder, a line each; files that are none are passed over."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    found = 0
    for file in sorted(folder.glob("*.json")):
        try:
            record = read_record(file, VERSION)
            name, samples = facts(record, "model").get("name", "model"), count(record, "samples")
        except ValueError as error:
            if _looks_like_one(file):
                found += 1
                print(error)
            continue
        found += 1
        state = "complete" if record.get("complete") is True else "partial"
        print(f"{file}: {name}, {samples} samples, {state}")
    if not found:
        print(f"no audits in {folder}")


def _looks_like_one(file: Path) -> bool:
    """Whether a file that cannot be read once was a record."""
    if not file.is_file():  # a pipe would keep us waiting
        return False
    try:
        with file.open("rb") as stream:
            return b'"taut_audit"' in stream.read(LARGEST)
    except OSError:
        return False
