"""merge: one record of what several machines, shards and stopped runs have seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from taut.audit.part_files import file_stem
from taut.audit.record import Record
from taut.audit.records_in_folder import record_files
from taut.audit.run_identity import runs_differ, short_digest
from taut.audit.sample_spans import Span, joined, missing, said, shared
from taut.audit.sample_spans import count as counted


class Merged(NamedTuple):
    """A merged record, and what is worth knowing about it.

    Attributes
    ----------
    record
        The record of all that was seen.
    missing
        The samples that no record holds: ranges, each (first, one after the last).
    shards
        The shards that are missing or were not finished, where records say which they are.
    left_out
        Files, or numbers of records, all of whose samples are in others too.
    """

    record: Record
    missing: list[Span]
    shards: list[str]
    left_out: list[str]

    @property
    def missing_text(self) -> str:
        """The missing samples in words: ``0 to 7, 16 to 23``."""
        return said(self.missing)


def merge(records: Iterable[Record | str | Path] | Record | str | Path) -> Record:
    """Make one record of several: shards, parts of processes, and runs that were stopped.

    It is the record that one run over all of their samples gives, to the last bit, in whatever
    order they come. The records themselves are left alone.

    Parameters
    ----------
    records
        Records, files of them, or folders: all records in a folder. They must be of one run: the
        same model, data and settings. A record whose samples are all in others is left out.

    Returns
    -------
    Record
        ``.complete`` says whether it holds all of the data, ``.seen`` which samples.

    Raises
    ------
    ValueError
        If records are of different runs, and in what they differ; if some of a record's samples,
        but not all, are in another one; if a file is damaged.

    Examples
    --------
    >>> import torch
    >>> from taut import audit
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> data = [torch.randn(3, 5, 8) for _ in range(4)]
    >>> shards = [audit.run(layer, data, shard=(i, 3)) for i in (1, 2, 3)]
    >>> [shard.samples for shard in shards]
    [6, 3, 3]
    >>> merge(shards).heads == audit.run(layer, data).heads
    True
    """
    if isinstance(records, (Record, str, Path)):
        records = [records]
    return merged(read_all(records)).record


def read_all(records: Iterable[Record | str | Path]) -> list[Record]:
    """All records, from wherever they are; a ValueError names a file that cannot be read."""
    found: list[Record] = []
    for given in records:
        if isinstance(given, Record):
            found.append(given)
            continue
        place = Path(given)
        files = record_files(place) if place.is_dir() else [place]
        if not files:
            raise ValueError(f"there are no records in {place}")
        found += [Record.load(file) for file in files]
    places = {record.file.resolve(): record for record in found if record.file is not None}
    return [r for r in found if r.file is None or places[r.file.resolve()] is r]


def merged(records: Sequence[Record]) -> Merged:
    """Merge records that were read."""
    if not records:
        raise ValueError("there is nothing to merge: give records, files or folders")
    names = {id(record): _name(record, number) for number, record in enumerate(records, start=1)}
    _check_one_run(records, names)
    chosen, left_out = _without_doubles(records, names)
    # In the order of the samples: what is said about model and data is that of the first.
    chosen.sort(key=lambda record: record.seen)
    first = chosen[0]
    result = Record(
        deepcopy(first.model), deepcopy(first.data), deepcopy(first.settings), complete=True,
        versions=dict(first.versions), identity=deepcopy(first.identity),
    )  # fmt: skip
    for record in chosen:
        result.merge(record)
    total = first.data.get("samples")
    gone = missing(result.seen, total) if isinstance(total, int) else []
    if isinstance(total, int):
        result.complete = not gone
    return Merged(result, gone, _unfinished(records) if gone else [], left_out)


def output_file(record: Record, records: Sequence[Record]) -> Path:
    """The file of the whole run, beside the first record; the same command continues it."""
    folder = next((each.file.parent for each in records if each.file is not None), Path())
    return folder / f"{file_stem(record)}.json"


def _name(record: Record, number: int) -> str:
    return f"record {number}" if record.file is None else str(record.file)


def _check_one_run(records: Sequence[Record], names: dict[int, str]) -> None:
    first = records[0]
    for record in records:
        name = names[id(record)]
        if found := runs_differ(first, record):
            more = f", and {len(found) - 3} others" if len(found) > 3 else ""
            raise ValueError(
                f"{names[id(first)]} and {name} are not of one run: they differ in "
                f"{'; '.join(found[:3])}{more}.{_runs(records)}"
            )
        if unknown := record.identity.get("unknown"):
            raise ValueError(
                f"{name} is of a model that cannot be identified ({unknown[0]}): nobody can tell "
                "whether another record is of the same"
            )


def _runs(records: Sequence[Record]) -> str:
    """How many runs there are, for somebody who gave a whole folder."""
    kinds: dict[str, int] = {}
    for record in records:
        kinds[short_digest(record)] = kinds.get(short_digest(record), 0) + 1
    return f" There are {len(kinds)} runs in {len(records)} records: give the files of one of them."


def _without_doubles(
    records: Sequence[Record], names: dict[int, str]
) -> tuple[list[Record], list[str]]:
    """Records that share no samples, and the names of those that hold nothing new."""
    chosen: list[Record] = []
    left_out = []
    for record in sorted(records, key=lambda record: (-record.samples, record.seen)):
        name = names[id(record)]
        twice = shared(joined(span for each in chosen for span in each.seen), record.seen)
        if chosen and counted(twice) == record.samples:
            left_out.append(name)
        elif twice:
            others = [names[id(each)] for each in chosen if shared(each.seen, record.seen)]
            raise ValueError(
                f"{name} and {', '.join(others[:3])} both hold the samples {said(twice)}, and each "
                "has others besides: leave one of them out, and audit what is missing then"
            )
        else:
            chosen.append(record)
    return chosen, sorted(left_out)


def _unfinished(records: Sequence[Record]) -> list[str]:
    """Shards that are missing or stopped, if all records are shards of the same number of them."""
    shards = [record.shard for record in records if record.shard is not None]
    if len({shard.total for shard in shards}) != 1 or shards[0].total > 10_000:
        return []
    done = {shard.number for shard in shards if shard.complete}
    begun = {shard.number for shard in shards} - done
    return [
        f"{number}/{shards[0].total}" + (" (not finished)" if number in begun else "")
        for number in range(1, shards[0].total + 1)
        if number not in done
    ]
