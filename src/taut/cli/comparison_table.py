"""Several records side by side on the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from taut._base.terminal_text import cells, say
from taut.audit import (
    ComparedHead,
    Record,
    compare,
    layer_pattern,
    record_differences,
    short_layer_names,
)


def show_comparison(files: Sequence[Path], lines: int, *, as_json: bool) -> None:
    """Print records side by side: all heads as JSON, or those that changed most as a table."""
    records = [Record.load(file) for file in files]
    heads, differ = compare(*records), record_differences(*records)
    if as_json:
        found = [{**head._asdict(), "change": head.change} for head in heads]
        told = {"records": [str(file) for file in files], "differences": differ, "heads": found}
        print(json.dumps(told))
        return
    for number, (file, record) in enumerate(zip(files, records, strict=True), start=1):
        rows = [row for row in record.heads if row["rows"]]
        mean = sum(row["mean"] for row in rows) / max(len(rows), 1)
        name = record.model.get("name", "model")
        kind = record.columns["mean"].kind
        say(f"{number}. {file}: {name}, mean constant {mean:.4f} ({kind}) over {len(rows)} heads")
    for sentence in differ:
        say(f"- {sentence}")
    kinds = [record.columns["mean"].kind for record in records]
    columns = [f"{file.stem} ({kind})" for file, kind in zip(files, kinds, strict=True)]
    _table(heads, columns, lines)
    lost = sum(None in head.means for head in heads)
    if heads and lost == len(heads):
        say("There is nothing to compare: no head is in every record.")
    elif lost:
        say(f"{lost} of {len(heads)} heads are not in every record.")


def _table(heads: list[ComparedHead], columns: list[str], lines: int) -> None:
    from rich.console import Console
    from rich.table import Table

    full = list(dict.fromkeys(head.layer for head in heads))
    names = dict(zip(full, short_layer_names(full), strict=True))
    if layer_pattern(full):
        say(f"Layers are {layer_pattern(full)}")
    table = Table("layer", "head", title="Mean constants in l2, largest change first")
    for column in cells(*columns):
        table.add_column(column, justify="right")
    table.add_column("change", justify="right")
    ranked = sorted(heads, key=lambda head: (head.change is None, -abs(head.change or 0.0)))
    for head in ranked[:lines]:
        means = ["-" if mean is None else f"{mean:.4f}" for mean in head.means]
        change = "-" if head.change is None else f"{head.change:+.4f}"
        table.add_row(*cells(names[head.layer], head.head, *means, change))
    Console().print(table)
