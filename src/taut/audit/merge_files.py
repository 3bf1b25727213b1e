"""merge_files: records in files and folders, merged into one file without losing anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taut._base.lock import locked
from taut.audit.merge import Merged, merged, output_file, read_all
from taut.audit.record import Record


def merge_files(places: Sequence[str | Path], output: str | Path | None = None) -> Merged:
    """Merge records as :func:`taut.audit.merge` does, and write the result to a file.

    Parameters
    ----------
    places
        Files of records, or folders of them.
    output
        The file to write; by default that of the whole audit, beside the first record, where the
        command of the audit without a shard goes on with it. If it is there, it must be a record of
        the same run, whose samples are kept too.

    Returns
    -------
    Merged
        The record, and which samples and shards are missing.
    """
    records = read_all(places)
    found = merged(records)
    file = output_file(found.record, records) if output is None else Path(output)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: give the name of a file to write")
    if file.suffix != ".json":  # a page or a table beside it would take its place
        raise ValueError(f"{file}: the name of a record ends in .json")
    with locked(file):  # an audit may be at work on it
        if file.exists() and not any(_is(record, file) for record in records):
            found = merged([*records, _there(file)])
        found.record.save(file)
    found.record.file = file
    return found


def _is(record: Record, file: Path) -> bool:
    return record.file is not None and record.file.resolve() == file.resolve()


def _there(file: Path) -> Record:
    """The record that lies where the result goes."""
    try:
        return Record.load(file)
    except ValueError as error:
        raise ValueError(f"{error}. It is in the way: give another name to write to") from None
