"""Several records on the terminal: side by side, or those in a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from taut._json import LARGEST
from taut._text import cells, say
from taut.audit._compare import Compared, compare, differences
from taut.audit._names import pattern, short_names
from taut.audit._parse import count, facts, read_record
from taut.audit._record import VERSION, Record


def compared(files: Sequence[Path], lines: int, *, as_json: bool) -> None:
    """Records side by side: all heads as JSON, or those that changed most as a table."""
    records = [Record.load(file) for file in files]
    heads, differ = compare(*records), differences(*records)
    if as_json:
        found = [{**head._asdict(), "change": head.change} for head in heads]
        told = {"records": [str(file) for file in files], "differences": differ, "heads": found}
        print(json.dumps(told))
        return
    for number, (file, record) in enumerate(zip(files, records, strict=True), start=1):
        rows = [row for row in record.heads if row["rows"]]
        mean = sum(row["mean"] for row in rows) / max(len(rows), 1)
        name = record.model.get("name", "model")
        say(f"{number}. {file}: {name}, mean constant {mean:.4f} over {len(rows)} heads")
    for sentence in differ:
        say(f"- {sentence}")
    _table(heads, [file.stem for file in files], lines)
    lost = sum(None in head.means for head in heads)
    if heads and lost == len(heads):
        say("There is nothing to compare: no head is in every record.")
    elif lost:
        say(f"{lost} of {len(heads)} heads are not in every record.")


def _table(heads: list[Compared], columns: list[str], lines: int) -> None:
    from rich.console import Console
    from rich.table import Table

    full = list(dict.fromkeys(head.layer for head in heads))
    names = dict(zip(full, short_names(full), strict=True))
    if pattern(full):
        say(f"Layers are {pattern(full)}")
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
                say(error)
            continue
        found += 1
        state = "complete" if record.get("complete") is True else "partial"
        say(f"{file}: {name}, {samples} samples, {state}")
    if not found:
        say(f"no audits in {folder}")


def _looks_like_one(file: Path) -> bool:
    """Whether a file that cannot be read once was a record."""
    if not file.is_file():  # a pipe would keep us waiting
        return False
    try:
        with file.open("rb") as stream:
            return b'"taut_audit"' in stream.read(LARGEST)
    except OSError:
        return False
