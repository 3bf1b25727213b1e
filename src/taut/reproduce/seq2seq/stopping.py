"""Ctrl-C and SIGTERM end a training after its current step, with its state saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and its state is saved."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is done meanwhile, with a word on how to go on."""

    def stop(_number: int, _frame: Any) -> None:
        raise Stopped

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if main else None
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise Stopped(str(stopped) or "stopped; the same command goes on") from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM, which then do not break a step in two; a second one does."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event  # signals reach the main thread only
        return
    before: dict[int, Any] = {}

    def note(number: int, _: Any) -> None:
        event.set()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    try:
        yield event
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
