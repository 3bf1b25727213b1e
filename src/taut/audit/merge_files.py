"""merge_files: records in files and folders, merged into one file without losing anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taut._base.lock import locked
from taut.audit.merge import Merged, MergeSource, from_file, merged, output_file, read_all


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
    sources = read_all(places)
    file = output_file(sources) if output is None else Path(output)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: give the name of a file to write")
    if file.suffix != ".json":  # a page or a table beside it would take its place
        raise ValueError(f"{file}: the name of a record ends in .json")
    with locked(file):  # an audit may be at work on it, and may have added to it meanwhile
        others = [each for each in sources if each.file is None or not _same(each.file, file)]
        found = merged([*others, *([_there(file)] if file.exists() else [])])
        found.record.save(file)
    found.record.file = file
    return found


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _there(file: Path) -> MergeSource:
    """The record that lies where the result goes."""
    try:
        return from_file(file)
    except ValueError as error:
        raise ValueError(f"{error}. It is in the way: give another name to write to") from None
