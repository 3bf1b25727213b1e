"""An audit that is kept in a folder: it is begun or continued, saved on the way, and finished.

Any number of processes share the samples; the first one owns the record.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from taut._base.progress import shown
from taut._base.terminal_text import say
from taut.audit.auditor import Auditor
from taut.audit.interrupt import uninterrupted
from taut.audit.model_and_data import AuditData
from taut.audit.part_files import claimed, make_folder, part_of, read_parts, remove, together
from taut.audit.processes import Processes
from taut.audit.record import Record
from taut.audit.run_identity import runs_differ
from taut.audit.sample_spans import Span

SAVE_EVERY = 5.0  # seconds


def run_in_folder(
    auditor: Auditor, data: AuditData, folder: Path, here: Processes, progress: bool
) -> Record:
    """Audit what was not seen yet; return the record of all processes.

    A process that was stopped returns what is in its own record.
    """
    record = auditor.record
    _agree(record, here)
    with ExitStack() as held:
        file = here.first(lambda: held.enter_context(claimed(record, folder)))
        make_folder(file.parent)
        _take_up(record, file, here, data.spans)
        left = here.first(lambda: _left(record, data.spans))
        record.file = file
        if here.rank == 0 and record.samples:
            say_found(record, more=bool(left))
        if not left:
            return here.first(lambda: record)
        mine, own = left[here.rank :: here.world], part_of(file, here.rank)
        with _kept(record, own, here) as stopped:
            _work(auditor, data, mine, own, quiet=here.rank != 0 or not progress)
        return record if stopped else _finished(record, file, here)


def say_found(record: Record, *, more: bool) -> None:
    """Say on standard error what was found of an earlier run, and where."""
    if more:
        there = f"{record.samples} of {record.data['samples']} samples are in {record.file}"
        say(f"taut audit: continuing, as {there}", file=sys.stderr)
    else:
        say(f"taut audit: {record.file} is finished; nothing is measured again", file=sys.stderr)


def _agree(record: Record, here: Processes) -> None:
    """Raise an error if processes have loaded different models: random weights need a seed."""
    for other in here.all(record):
        if found := runs_differ(record, other):
            raise ValueError(
                "the processes have loaded different models or data, which differ in "
                f"{', '.join(found[:3])}: is something random without a seed?"
            )


def _take_up(record: Record, file: Path, here: Processes, every: list[Span]) -> None:
    """Put what any process saw before into the record of the first one."""
    found = []
    if here.local == 0:  # machines may have disks of their own
        found = read_parts(file, record, every)
    collected = here.collected([part.record for part in found])
    if collected is not None:
        mine = dict(record.made)  # the command of this run, not those of runs before it
        together([part for parts in collected for part in parts], record)
        record.made.update(mine)
        record.finished(not _left(record, every))
        state = (file, record.seen, record.complete, record.shard)
        there = [(p.file, p.record.seen, p.record.complete, p.record.shard) for p in found]
        if record.samples and state not in there:
            _save(record, file)
    here.all(None)  # it is written: the parts may go
    remove([part.file for part in found if part.file != file])


def _left(record: Record, every: list[Span]) -> list[Span]:
    """The batches that were not seen yet."""
    begins, ends = [first for first, _ in record.seen], [end for _, end in record.seen]

    def is_seen(first: int) -> bool:
        place = bisect_right(begins, first) - 1
        return place >= 0 and first < ends[place]

    return [span for span in every if not is_seen(span[0])]


def _save(record: Record, file: Path) -> None:
    try:
        record.save(file)
    except OSError as error:
        raise OSError(
            f"{error}. What was saved before is kept: mend this and run it again to continue"
        ) from error


def _finished(record: Record, file: Path, here: Processes) -> Record:
    """The record of all processes, which the first one writes."""
    every = here.collected(record)
    if every is not None:
        for other in every[1:]:
            record.merge(other)
        record.finished()
        _save(record, file)
    whole = here.first(lambda: record)  # it is written: the parts may go
    if here.rank:
        remove([part_of(file, here.rank)])
    return whole


@contextmanager
def _kept(record: Record, file: Path, here: Processes) -> Iterator[list[bool]]:
    """Save what was seen, however the work ends; Ctrl-C fills the list that this gives."""
    stopped: list[bool] = []
    try:
        yield stopped
    except KeyboardInterrupt:
        stopped.append(True)
        seen = f" after {record.samples} of {record.data['samples']} samples"
        if here.rank == 0:
            again = "run it again to continue"
            if record.identity["unknown"]:
                again = "the next run begins anew, as the model cannot be identified"
            say("", file=sys.stderr)
            seen = seen if here.world == 1 else ""
            say(f"taut audit: stopped{seen}; {again}", file=sys.stderr)
    finally:
        with uninterrupted():
            if record.samples:
                _save(record, file)


def _work(auditor: Auditor, data: AuditData, mine: list[Span], file: Path, *, quiet: bool) -> None:
    """Audit the batches of this process, saving now and then."""
    record, saved = auditor.record, time.monotonic()
    total = record.samples + sum(end - first for first, end in mine)
    made = data.make(mine)
    for batch in shown(made, total, "samples", done=lambda: record.samples, quiet=quiet):
        auditor.add(batch.inputs, tokens=batch.tokens, first=batch.first)
        if time.monotonic() - saved > SAVE_EVERY:
            _save(record, file)
            saved = time.monotonic()
