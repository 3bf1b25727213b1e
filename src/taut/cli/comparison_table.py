"""Several records side by side on the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from taut._base.terminal_text import cells, say, shortened
from taut.audit import (
    Comparison,
    Record,
    TrainingRecords,
    comparison,
    layer_pattern,
    read_training,
    short_layer_names,
    write_comparison,
)


class Compared(NamedTuple):
    """What the command was given: records with their names, and trainings if folders were."""

    names: list[str]
    records: list[Record]
    trainings: list[TrainingRecords]


def read_compared(given: Sequence[Path]) -> Compared:
    """Records from files, or the last ones of trainings from folders."""
    folders = [place for place in given if place.is_dir()]
    if folders and len(folders) < len(given):
        raise ValueError(
            "give either files of records, or folders: one for each training, with a record for "
            "each step"
        )
    if not folders:
        return Compared(short_names(given), [Record.load(file) for file in given], [])
    trainings = [read_training(folder) for folder in folders]
    return Compared([each.name for each in trainings], [each.last for each in trainings], trainings)


def short_names(files: Sequence[Path]) -> list[str]:
    """Names of files without the digits that `taut audit` gives them, where they still differ."""
    names = [file.stem for file in files]
    short = [re.sub("-[0-9a-f]{16}$", "", name) for name in names]
    return short if len(set(short)) == len(set(names)) else names


def show_comparison(
    given: Sequence[Path], lines: int, *, as_json: bool, page: Path | None = None
) -> None:
    """Print records side by side, as JSON or as tables, and write the page if it is asked for."""
    names, records, trainings = read_compared(given)
    if len(records) == 1 and trainings:  # one training: its first step beside its last
        raise ValueError("give at least two folders, or the files of one training themselves")
    found = comparison(*records)
    if page is not None:
        write_comparison(records, page, names=names, trainings=trainings)
    if as_json:
        steps = {each.name: [step._asdict() for step in each.steps] for each in trainings}
        told = {"records": [str(place) for place in given], **found.to_dict(), "trainings": steps}
        print(json.dumps(told))
        return
    say(found.verdict)
    for sentence in (*found.reasons, *found.differences):
        say(f"- {sentence}")
    _distributions(found, names, records)
    if trainings:
        _steps(trainings)
    if found.heads:
        kinds = [record.columns["mean"].kind for record in records]
        columns = [f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True)]
        _heads(found, columns, lines)
    if found.kind == "heads" and found.lost:
        say(f"{found.lost} heads are not in every record, or have no rows there.")
    if page is not None:
        say(f"page: {page}")


def _distributions(found: Comparison, names: Sequence[str], records: Sequence[Record]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("record", "heads", title="Mean constants of heads in l2: quantiles over heads")
    for share in ("5%", "25%", "median", "75%", "95%"):
        table.add_column(share, justify="right")
    for name, record, quantiles in zip(names, records, found.quantiles, strict=True):
        kind = record.columns["mean"].kind
        count = sum(row["rows"] > 0 for row in record.heads)
        texts = [f"{value:.4f}" for value in quantiles] or ["–"] * 5
        table.add_row(*cells(f"{shortened(name, 40)} ({kind})", count, *texts))
    Console().print(table)


def _steps(trainings: Sequence[TrainingRecords]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("training", "step", title="Mean constant of all heads over training")
    table.add_column("mean", justify="right")
    table.add_column("largest", justify="right")
    for each in trainings:
        for step in each.steps:
            mean, largest = f"{step.mean:.4f} ({step.kind})", f"{step.largest:.4f}"
            table.add_row(*cells(shortened(each.name, 40), step.step, mean, largest))
    Console().print(table)


def _heads(found: Comparison, columns: list[str], lines: int) -> None:
    from rich.console import Console
    from rich.table import Table

    full = list(dict.fromkeys(head.layer for head in found.heads))
    names = dict(zip(full, short_layer_names(full), strict=True))
    if layer_pattern(full):
        say(f"Layers are {layer_pattern(full)}")
    table = Table("layer", "head", title="Mean constants in l2, largest change first")
    for column in cells(*columns):
        table.add_column(column, justify="right")
    table.add_column("change", justify="right")
    ranked = sorted(found.heads, key=lambda head: -abs(head.change or 0.0))
    for head in ranked[:lines]:
        means = [f"{mean:.4f}" for mean in head.means]
        table.add_row(*cells(names[head.layer], head.head, *means, f"{head.change:+.4f}"))
    Console().print(table)
