"""A progress bar on the terminal, where there is one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def shown(
    items: Iterable[Item],
    total: int,
    what: str,
    *,
    done: Callable[[], int] | None = None,
    quiet: bool = False,
) -> Iterator[Item]:
    """Yield the items and show how many are done, the rate and the time left, if rich is there.

    ``done`` says how much of the total is done where an item stands for more than one.
    """
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        yield from items
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    began, before, count = time.monotonic(), 0 if done is None else done(), 0
    console, off = Console(stderr=True), quiet or not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=off) as bar:
        task = bar.add_task(what, total=total, completed=before, rate="")
        for item in items:
            yield item
            count += 1
            now = count if done is None else done()
            rate = (now - before) / max(time.monotonic() - began, 1e-9)
            bar.update(task, completed=now, rate=f"{rate:.1f}/s,")
