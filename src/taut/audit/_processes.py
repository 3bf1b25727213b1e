"""Several processes: each takes its share of the batches, and one puts the records together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch.distributed as distributed

from taut.audit._record import Record


class Processes(NamedTuple):
    """Which process this is, and how many there are."""

    rank: int
    world: int

    def together(self, record: Record) -> Record | None:
        """The record of all processes, in the first one; None in the others."""
        if self.world == 1:
            return record
        found: list[Record | None] | None = [None] * self.world if self.rank == 0 else None
        distributed.gather_object(record, found)
        if found is None:
            return None
        whole = found[0]
        assert whole is not None
        for other in found[1:]:
            assert other is not None
            whole.merge(other)
        return whole


@contextmanager
def processes() -> Iterator[Processes]:
    """The processes that torchrun or accelerate started; one alone otherwise."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes(0, 1)
        return
    started = not distributed.is_initialized()
    if started:
        distributed.init_process_group("gloo")
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    finally:
        if started:
            distributed.destroy_process_group()
