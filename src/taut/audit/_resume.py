"""One model, its files, and its processes: an audit begins, goes on, and comes to its record."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut._text import say
from taut.audit._batches import Batch, batches, fitted
from taut.audit._data import Samples
from taut.audit._identity import differences
from taut.audit._interrupt import uninterrupted
from taut.audit._parts import claimed, part_of, read_parts, remove, together
from taut.audit._processes import Processes, processes
from taut.audit._progress import shown
from taut.audit._reading import identify_reader, reader_of
from taut.audit._record import Record
from taut.audit._run import Auditor, fresh_record
from taut.torch._load import load

if TYPE_CHECKING:
    from taut.audit._command import Options

SAVE_EVERY = 5.0  # seconds


def audited(
    place: str, label: str, samples: Samples, options: Options
) -> tuple[Record | None, Path]:
    """Audit one model, or go on with it; its record (in the first process), and where that is.

    Other processes give None, or, if they were stopped, what they have seen.
    """
    with processes() as here, ExitStack() as held:
        model = load(
            place,
            dtype=options.dtype,
            revision=options.revision,
            trust_remote_code=options.trust_remote_code,
            device=_device(options.device),
        )
        reader = reader_of(samples, model, place, options.revision, options.tokenizer)
        record = _fresh(fresh_record(model, label, place), reader, samples, options)
        record.data.update(fitted(samples, model, options.max_length, reader))
        _agree(record, here)
        file = here.first(lambda: held.enter_context(claimed(record, options.output_dir)))
        _take_up(record, file, here, options.batch_size)
        left = here.first(lambda: _left(record, options.batch_size))
        if not left:
            return record if here.rank == 0 else None, file
        own, mine = part_of(file, here.rank), left[here.rank :: here.world]
        auditor = Auditor(
            model, record, norms=options.norms, epsilons=options.epsilons, seed=options.seed,
            threshold=options.threshold, logits=options.logits, sampled=options.sampled,
            rows=options.rows,
        )  # fmt: skip
        made = batches(
            samples, model, place, mine, size=options.batch_size, max_length=options.max_length,
            reader=reader,
        )  # fmt: skip
        ends = (min(first + options.batch_size, record.data["samples"]) for first in mine)
        total = record.samples + sum(end - first for first, end in zip(mine, ends, strict=True))
        with _kept(record, own, here) as stopped:
            _work(auditor, made, total, options.batch_size, own, here)
        if stopped:
            return record, file
        whole = _finished(record, file, here)
    return whole, file


def _agree(record: Record, here: Processes) -> None:
    """All processes must have loaded the same: weights that are drawn without a seed are not."""
    for other in here.all(record):
        if found := differences(record, other):
            raise ValueError(
                "the processes have loaded different models or data, which differ in "
                f"{', '.join(found[:3])}: is something random without a seed?"
            )


def _take_up(record: Record, file: Path, here: Processes, size: int) -> None:
    """Put into the first process's record what was seen before, whoever saw it."""
    found = []
    if here.local == 0:  # machines may have disks of their own
        found = read_parts(file, record, size, record.data["samples"])
    every = here.collected([part.record for part in found])
    if every is not None:
        together([part for parts in every for part in parts], record)
        record.complete = not _left(record, size)
        state = (file, record.seen, record.complete)
        there = [(part.file, part.record.seen, part.record.complete) for part in found]
        if record.samples and state not in there:
            record.save(file)
    here.all(None)  # it is written: the parts may go
    remove([part.file for part in found if part.file != file])


def _left(record: Record, size: int) -> list[int]:
    """The first samples of the batches that were not seen yet."""
    every = range(0, record.data["samples"], size)
    seen = {first for begin, end in record.seen for first in range(begin, end, size)}
    return [first for first in every if first not in seen]


def _finished(record: Record, file: Path, here: Processes) -> Record | None:
    """The record of all processes, in the first one; None in the others."""
    every = here.collected(record)
    if every is not None:
        for other in every[1:]:
            record.merge(other)
        record.complete = True
        record.save(file)
    here.all(None)
    if here.rank:
        remove([part_of(file, here.rank)])
        return None
    return record


def _device(asked: str) -> str:
    """Each process on its own accelerator."""
    if asked == "cuda" and "LOCAL_RANK" in os.environ:
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return asked


def _fresh(record: Record, reader: Any, samples: Samples, options: Options) -> Record:
    """A record of this run, in which nothing was seen yet."""
    settings = {
        "dtype": options.dtype,
        "max_length": options.max_length,
        "limit": options.limit,
        "batch_size": options.batch_size,
        "tokenizer": options.tokenizer,
        "norms": [str(p) for p in options.norms],
        "epsilons": options.epsilons,
        "threshold": options.threshold,
        "logits": options.logits,
        "seed": options.seed,
        "sampled": [options.sampled, options.rows],
    }
    identity = {**record.identity, "reader": identify_reader(reader)}
    return replace(record, data=samples.description, settings=settings, identity=identity)


@contextmanager
def _kept(record: Record, file: Path, here: Processes) -> Iterator[list[bool]]:
    """What was seen is written down, however the work ends; Ctrl-C is no error, and is told."""
    stopped: list[bool] = []
    try:
        yield stopped
    except KeyboardInterrupt:
        stopped.append(True)
        seen = f" after {record.samples} of {record.data['samples']} samples"
        if here.rank == 0:
            again = "begins anew, as the model cannot be identified"
            again = again if record.identity["unknown"] else "goes on from there"
            say("", file=sys.stderr)
            seen = seen if here.world == 1 else ""
            say(f"taut audit: stopped{seen}; the same command {again}", file=sys.stderr)
    finally:
        with uninterrupted():
            if record.samples:
                record.save(file)


def _work(
    auditor: Auditor, made: Iterator[Batch], total: int, size: int, file: Path, here: Processes
) -> None:
    """The batches of this process, saving now and then."""
    record = auditor.record
    saved = time.monotonic()
    for batch in shown(made, total, record, quiet=here.rank != 0 or not sys.stderr.isatty()):
        try:
            auditor.add(batch.inputs, tokens=batch.tokens, first=batch.first)
        except RuntimeError as error:  # of accelerators OutOfMemoryError, of the host this
            if "memory" not in str(error):
                raise
            smaller = f"--batch-size {size // 2}" if size > 1 else "a smaller --max-length"
            raise ValueError(f"out of memory: try {smaller}") from None
        if time.monotonic() - saved > SAVE_EVERY:
            record.save(file)
            saved = time.monotonic()
