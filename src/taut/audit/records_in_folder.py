"""The records in a folder."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from taut._base.json_files import LARGEST, SEAL
from taut.audit.record import Record

_NAMED = re.compile(r"-[0-9a-f]{16}(-\d+)?(\.shard-\d+-of-\d+)?(\.part-\d+)?\.json$")


class FolderEntry(NamedTuple):
    """One record, in a few words; ``error`` says why a record cannot be read.

    ``mean`` is the mean of its heads' mean l2 constants, of the kind ``kind``; ``data`` is where
    the data came from, and ``date`` when the record was made. That of a shard says which one it is
    in ``shard``, and is complete if all of its part was seen.
    """

    file: Path
    name: str = ""
    samples: int = 0
    complete: bool = False
    error: str = ""
    shard: str = ""
    mean: float = math.nan
    kind: str = ""
    data: str = ""
    date: str = ""


def records_in(folder: str | Path) -> list[FolderEntry]:
    """List the records in a folder, sorted by file name; other files are passed over."""
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"there is no folder {place}")
    found = []
    for file in sorted(place.glob("*.json")):
        try:
            found.append(_entry(Record.load(file), file))
        except ValueError as error:
            if _looks_like_a_record(file):
                found.append(FolderEntry(file, error=str(error)))
    return found


def _entry(record: Record, file: Path) -> FolderEntry:
    means = [row["mean"] for row in record.heads if row["rows"]]
    return FolderEntry(
        file,
        str(record.model.get("name", "model")),
        record.samples,
        record.complete if record.shard is None else record.shard.complete,
        shard="" if record.shard is None else str(record.shard),
        mean=sum(means) / len(means) if means else math.nan,
        kind=record.columns["mean"].kind,
        data=str(record.data.get("source", "")),
        date=str(record.made.get("date", "")),
    )


def record_files(folder: Path) -> list[Path]:
    """The files in a folder that are records, or were before something damaged them."""
    return [file for file in sorted(folder.glob("*.json")) if _looks_like_a_record(file)]


def _looks_like_a_record(file: Path) -> bool:
    """Whether a file that cannot be read once was a record."""
    if not file.is_file():  # a pipe would keep us waiting
        return False
    if _NAMED.search(file.name):
        return True
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST)
    except OSError:
        return False
    # The version comes late in the file: of one that was cut, the beginning must do.
    cut = content.startswith(f'{{"{SEAL}":'.encode()) and not content.rstrip().endswith(b"}")
    return cut or b'"taut_audit"' in content
