"""Work shared between threads."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any


def in_threads(work: Callable[[Any], None], shares: list[Any]) -> None:
    """Do one share in this thread and each of the others in a thread of its own.

    Plain threads cost less than a pool here, and leave nothing behind that a fork could break.
    """
    failures: list[BaseException] = []

    def guarded(share: Any) -> None:
        try:
            work(share)
        except BaseException as error:
            failures.append(error)

    others = [Thread(target=guarded, args=(share,)) for share in shares[1:]]
    for thread in others:
        thread.start()
    guarded(shares[0])
    for thread in others:
        thread.join()
    if failures:
        raise failures[0]
