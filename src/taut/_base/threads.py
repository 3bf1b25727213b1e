"""Work shared between threads, which are kept for the next time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any


class _Job:
    """Shares of work that any thread may take; the one that asked for it takes what is left.

    So nothing depends on the other threads: where they are busy, or did not survive a fork, the
    asking thread does everything itself.
    """

    def __init__(self, work: Callable[[Any], None], shares: list[Any]) -> None:
        self.work = work
        self.waiting = deque(shares)
        self.unfinished = len(shares)
        self.failures: list[BaseException] = []
        self.counting, self.finished = Lock(), Lock()
        self.finished.acquire()  # released when the last share is done

    def take_shares(self) -> None:
        while True:
            try:
                share = self.waiting.popleft()
            except IndexError:
                return
            try:
                self.work(share)
            except BaseException as error:
                self.failures.append(error)
            with self.counting:
                self.unfinished -= 1
                last = self.unfinished == 0
            if last:
                self.finished.release()


class _Helpers:
    """Threads that wait for jobs: waking one takes a tenth of the time of starting it."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        self.count = 0
        self.counting = Lock()

    def call(self, job: _Job, wanted: int) -> None:
        with self.counting:
            for number in range(self.count, wanted):
                Thread(target=self._serve, name=f"taut-{number}", daemon=True).start()
            self.count = max(self.count, wanted)
        for _ in range(wanted):
            self.jobs.put(job)

    def _serve(self) -> None:
        jobs = self.jobs
        while True:
            job = jobs.get()
            job.take_shares()
            del job  # with the arrays that it holds


_helpers = _Helpers()


def _forget() -> None:
    """Threads do not survive a fork, and a lock may have been held by one of them."""
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def in_threads(work: Callable[[Any], None], shares: list[Any]) -> None:
    """Do all shares, in this thread and in as many others as there are further shares."""
    if len(shares) == 1:
        work(shares[0])
        return
    job = _Job(work, shares)
    _helpers.call(job, len(shares) - 1)
    job.take_shares()
    job.finished.acquire()
    if job.failures:
        raise job.failures[0]
