"""The files of one audit: its record, the parts that other processes leave, and how they join.

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

from taut._text import say
from taut.audit._identity import differences, mark
from taut.audit._lock import locked
from taut.audit._record import Record
from taut.audit._spans import count, shared


class Part(NamedTuple):
    """A file, and what is in it."""

    file: Path
    record: Record


@contextmanager
def claimed(fresh: Record, folder: Path) -> Iterator[Path]:
    """The file of a record, which no other process writes meanwhile.

    Where a file of this name holds another run, or where nobody can know, it is another name.
    """
    name = fresh.model["name"]
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "model"
    stem, number = f"{safe[-100:]}-{mark(fresh)}", 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {folder}: {error.strerror}") from None
    while True:
        file = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        with locked(file):
            if (why := _foreign(file, fresh)) is None:
                yield file
                return
        _say(f"{file} {why}: another name is used")
        number += 1


def _foreign(file: Path, fresh: Record) -> str | None:
    """Why the record in a file may not be gone on with; None if it may, or is none."""
    unknown = fresh.identity.get("unknown")
    if unknown and (file.exists() or _parts(file)):
        return f"may hold another model, as this one cannot be identified ({unknown[0]})"
    try:
        known = Record.load(file) if file.exists() else fresh
    except ValueError:
        return None  # damaged: it is set aside when it is read
    found = differences(known, fresh)
    return f"holds another run, which differs in {', '.join(found[:3])}" if found else None


def _parts(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.stem}.part-*.json"))


def read_parts(file: Path, fresh: Record, size: int, total: int) -> list[Part]:
    """All that was kept of this run; what is damaged is set aside."""
    found = []
    for path in [file, *_parts(file)]:
        if not path.exists():
            continue
        try:
            record = Record.load(path)
            _fits(record, fresh, size, total)
        except ValueError as error:
            _set_aside(path, error)
        else:
            found.append(Part(path, record))
    return found


def part_of(file: Path, rank: int) -> Path:
    """Where a process writes."""
    return file if rank == 0 else file.with_suffix(f".part-{rank}.json")


def together(records: Sequence[Record], fresh: Record) -> Record:
    """One record of all parts, the largest first; one that overlaps others is left out."""
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


def _fits(record: Record, fresh: Record, size: int, total: int) -> None:
    """A ValueError if a part is not one of this run: whole batches of its samples."""
    if found := differences(record, fresh):
        raise ValueError(f"it belongs to another run, which differs in {', '.join(found[:3])}")
    for first, end in record.seen:
        if first % size or (end % size and end != total) or end > total:
            raise ValueError(f"it holds samples {first} to {end - 1}, which are no whole batches")


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
