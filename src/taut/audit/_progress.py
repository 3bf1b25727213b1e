"""A bar of progress for batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from taut.audit._batches import Batch
from taut.audit._record import Record


def shown(made: Iterator[Batch], total: int, record: Record, *, quiet: bool) -> Iterator[Batch]:
    """The batches, with a bar of progress, rate and time left on the terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: Sequence[Any] = (
        BarColumn(), MofNCompleteColumn(), TextColumn("samples"),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    began, before = time.monotonic(), record.samples
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=total, completed=before, rate="")
        for batch in made:
            yield batch
            rate = (record.samples - before) / max(time.monotonic() - began, 1e-9)
            bar.update(task, completed=record.samples, rate=f"{rate:.1f}/s,")
