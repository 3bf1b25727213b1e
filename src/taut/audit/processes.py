"""Several processes: each takes its share of the batches, and the first merges the records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch.distributed as distributed

T = TypeVar("T")
# How long a process that is done waits for the others: shares of the data differ in length, and a
# process that has died is noticed at once.
PATIENCE = timedelta(days=7)


class Processes(NamedTuple):
    """Which process this is, and how many there are; ``local`` is its number on this machine."""

    rank: int
    world: int
    local: int = 0

    def all(self, value: T) -> list[T]:
        """Gather a value from every process, in the order of their ranks."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        self._met(lambda: distributed.all_gather_object(found, value))
        return found

    def collected(self, value: T) -> list[T] | None:
        """Gather a value from every process in the first one; None in the others."""
        if self.world == 1:
            return [value]
        found: list[Any] | None = [None] * self.world if self.rank == 0 else None
        self._met(lambda: distributed.gather_object(value, found))
        return found

    def first(self, make: Callable[[], T]) -> T:
        """Send what the first process makes to all of them; its error stops all."""
        if self.world == 1:
            return make()
        box: list[Any] = [None, None]
        failed: Exception | None = None
        if self.rank == 0:
            try:
                box[1] = make()
            except Exception as error:
                failed, box[0] = error, str(error)
        self._met(lambda: distributed.broadcast_object_list(box))
        if failed is not None:
            raise failed
        if box[0] is not None:
            raise SystemExit(2)  # the first process says why
        made: T = box[1]
        return made

    def _met(self, meet: Callable[[], Any]) -> None:
        try:
            meet()
        except RuntimeError as error:
            raise RuntimeError(
                "another process of this audit has ended: run it again to continue from what was "
                f"seen ({str(error).splitlines()[0]})"
            ) from None


@contextmanager
def processes() -> Iterator[Processes]:
    """The processes that torchrun or accelerate started; one alone otherwise."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes(0, 1)
        return
    started = not distributed.is_initialized()
    if started:
        distributed.init_process_group("gloo", timeout=PATIENCE)
    local = int(os.environ.get("LOCAL_RANK", "0"))
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size(), local)
    finally:
        if started:
            distributed.destroy_process_group()
