"""The files of one audit: its record, the parts of other processes, and how they are merged.

The first process writes the record itself, the others a part each. Every file says which samples it
holds, so whatever lies in the folder can be put together, by any number of processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from taut._base.lock import locked
from taut._base.terminal_text import say
from taut.audit.record import Record
from taut.audit.run_identity import runs_differ, short_digest
from taut.audit.sample_spans import Span, count, joined, shared


class PartFile(NamedTuple):
    """A file and the record in it."""

    file: Path
    record: Record


@contextmanager
def claimed(fresh: Record, folder: Path) -> Iterator[Path]:
    """Lock the file of a record, so that no other process writes it meanwhile.

    Where a file of this name holds another run, or where nobody can know, it is another name.
    """
    stem, number = file_stem(fresh), 1
    part = "" if fresh.shard is None else f".shard-{fresh.shard.number}-of-{fresh.shard.total}"
    make_folder(folder)
    while True:
        file = folder / f"{stem}{'' if number == 1 else f'-{number}'}{part}.json"
        with locked(file):
            if (why := _foreign(file, fresh)) is None:
                yield file
                return
        _say(f"{file} {why}: another name is used")
        number += 1


def make_folder(folder: Path) -> None:
    """Make the folder of an audit, which every machine does that has a disk of its own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {folder}: {error.strerror}") from None


def file_stem(record: Record) -> str:
    """The name of the file of a record, without its ending: the model, and a digest of the run."""
    name = record.model.get("name", "")
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "model"
    return f"{safe[-100:]}-{short_digest(record)}"


def _foreign(file: Path, fresh: Record) -> str | None:
    """Why the record in a file must not be continued; None if it may be, or if there is none."""
    unknown = fresh.identity.get("unknown")
    if unknown and (file.exists() or _parts(file)):
        return f"may hold another model, as this one cannot be identified ({unknown[0]})"
    try:
        known = Record.load(file) if file.exists() else fresh
    except ValueError:
        return None  # damaged: it is set aside when it is read
    found = runs_differ(known, fresh)
    return f"holds another run, which differs in {', '.join(found[:3])}" if found else None


def _parts(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.stem}.part-*.json"))


def read_parts(file: Path, fresh: Record, every: Sequence[Span]) -> list[PartFile]:
    """Read everything that was kept of this run, and set damaged files aside."""
    found = []
    for path in [file, *_parts(file)]:
        if not path.exists():
            continue
        try:
            record = Record.load(path)
            _fits(record, fresh, every)
        except ValueError as error:
            _set_aside(path, error)
        else:
            found.append(PartFile(path, record))
    return found


def part_of(file: Path, rank: int) -> Path:
    """The file that a process writes."""
    return file if rank == 0 else file.with_suffix(f".part-{rank}.json")


def together(records: Sequence[Record], fresh: Record) -> Record:
    """Merge all parts into one record, the largest first; leave out parts that overlap others."""
    for record in sorted(records, key=lambda record: -record.samples):
        twice = shared(fresh.seen, record.seen)
        if not twice:
            fresh.merge(record)
        elif lost := record.samples - count(twice):
            _say(f"two parts of the audit share samples: {lost} samples are measured again")
    return fresh


def remove(parts: Sequence[Path]) -> None:
    """Remove parts whose samples are in the record now."""
    for part in parts:
        part.unlink(missing_ok=True)


def _fits(record: Record, fresh: Record, every: Sequence[Span]) -> None:
    """Raise a ValueError if a part does not hold whole batches of this run."""
    if found := runs_differ(record, fresh):
        raise ValueError(f"it belongs to another run, which differs in {', '.join(found[:3])}")
    if lost := record.samples - count(shared(joined(every), record.seen)):
        raise ValueError(f"it holds {lost} samples that are not of {fresh.shard or 'these data'}")
    begins, ends = {first for first, _ in every}, {end for _, end in every}
    for first, end in record.seen:
        if first not in begins or end not in ends:
            raise ValueError(f"it holds samples {first} to {end - 1}, which are not whole batches")


def _set_aside(path: Path, why: Exception) -> None:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        os.replace(path, aside)
    except FileNotFoundError:
        return  # a process of another machine was here first
    _say(f"{path} cannot be used and is set aside as {aside.name}; its samples are measured again: "
         f"{why}")  # fmt: skip


def _say(words: str) -> None:
    say(f"taut audit: {words}", file=sys.stderr)
