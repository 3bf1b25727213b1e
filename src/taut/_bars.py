"""A bar of progress on the terminal, where there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def shown(items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    """The items, with a bar that says how many of them are done, if rich is there to draw it."""
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return items
    quiet = not sys.stderr.isatty()
    console = Console(stderr=True)
    return track(items, what, total, console=console, transient=True, disable=quiet)
