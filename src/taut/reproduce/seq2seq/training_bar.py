"""The bar of a training on the terminal, where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from taut.reproduce.seq2seq.needed_packages import for_training


@contextmanager
def training_bar(total: int, done: int, *, quiet: bool) -> Iterator[Callable[[int, float], None]]:
    """Steps and loss: what is yielded is called with both. Without rich there is no bar."""
    try:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda step, loss: None
        return
    columns: Any = (MofNCompleteColumn(), TextColumn("steps, loss {task.description},"),
                    TimeRemainingColumn(), TextColumn("left"))  # fmt: skip
    quiet = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda step, loss: bar.update(task, completed=step, description=f"{loss:.3f}")


@contextmanager
def without_bars() -> Iterator[None]:
    """No bars of transformers, for files that are read and written many times."""
    with for_training():
        from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
