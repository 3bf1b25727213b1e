"""merge: one record of what several machines, shards and stopped runs have seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from taut.audit.part_files import file_stem
from taut.audit.record import Record
from taut.audit.records_in_folder import record_files
from taut.audit.run_identity import runs_differ, short_digest
from taut.audit.sample_spans import Span, joined, missing, said, shared
from taut.audit.sample_spans import count as counted
from taut.audit.shard import Shard


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


class MergeSource(NamedTuple):
    """A record to merge: what it says about itself, and where its numbers are.

    Those of a file are read when they are merged, so that hundreds of shards of a large model need
    no more memory than two of them.
    """

    name: str
    summary: Record
    file: Path | None = None

    def read(self) -> Record:
        """All of the record."""
        return self.summary if self.file is None else Record.load(self.file)


def from_file(file: Path) -> MergeSource:
    """A record in a file, all of which is checked; a ValueError names the file."""
    found = Record.load(file)
    return MergeSource(str(file), replace(found, layers=[], logits=None, tokens={}), file)


def read_all(records: Iterable[Record | str | Path]) -> list[MergeSource]:
    """All records, from wherever they are; files that are named twice count once."""
    found: list[MergeSource] = []
    known = set()
    for number, given in enumerate(records, start=1):
        if isinstance(given, Record):
            found.append(MergeSource(str(given.file or f"record {number}"), given))
            continue
        place = Path(given)
        files = record_files(place) if place.is_dir() else [place]
        if not files:
            raise ValueError(f"there are no records in {place}")
        found += [from_file(file) for file in files if file.resolve() not in known]
        known |= {file.resolve() for file in files}
    if not found:
        raise ValueError("there is nothing to merge: give records, files or folders")
    return found


def merged(sources: Sequence[MergeSource]) -> Merged:
    """Merge records that were found."""
    _check_one_run(sources)
    chosen, left_out = _without_doubles(sources)
    # In the order of the samples: what is said about model and data is that of the first.
    chosen.sort(key=lambda source: source.summary.seen)
    first = chosen[0].summary
    result = Record(
        deepcopy(first.model), deepcopy(first.data), deepcopy(first.settings), complete=True,
        versions=dict(first.versions), identity=deepcopy(first.identity),
    )  # fmt: skip
    for source in chosen:
        result.merge(source.read())
    total = first.data.get("samples")
    gone = missing(result.seen, total) if isinstance(total, int) else []
    if isinstance(total, int):
        result.complete = not gone
    shards = [source.summary.shard for source in sources if source.summary.shard is not None]
    return Merged(result, gone, _unfinished(shards) if gone else [], left_out)


def output_file(sources: Sequence[MergeSource]) -> Path:
    """The file of the whole run, beside the first record; the same command continues it."""
    folder = next((source.file.parent for source in sources if source.file is not None), Path())
    return folder / f"{file_stem(sources[0].summary)}.json"


def _check_one_run(sources: Sequence[MergeSource]) -> None:
    first = sources[0]
    for source in sources:
        if found := runs_differ(first.summary, source.summary):
            more = f", and {len(found) - 3} others" if len(found) > 3 else ""
            raise ValueError(
                f"{first.name} and {source.name} are not of one run: they differ in "
                f"{'; '.join(found[:3])}{more}.{_runs(sources)}"
            )
        if unknown := source.summary.identity.get("unknown"):
            why = unknown[0] if isinstance(unknown, list) else unknown
            raise ValueError(
                f"{source.name} is of a model that cannot be identified ({why}): nobody can tell "
                "whether another record is of the same"
            )


def _runs(sources: Sequence[MergeSource]) -> str:
    """How many runs there are, for somebody who gave a whole folder."""
    kinds = {short_digest(source.summary) for source in sources}
    return f" There are {len(kinds)} runs in {len(sources)} records: give the files of one of them."


def _without_doubles(sources: Sequence[MergeSource]) -> tuple[list[MergeSource], list[str]]:
    """Records that share no samples, and the names of those that hold nothing new."""
    chosen: list[MergeSource] = []
    left_out = []
    held: list[Span] = []
    for source in sorted(sources, key=lambda each: (-each.summary.samples, each.summary.seen)):
        seen = source.summary.seen
        twice = shared(held, seen)
        if chosen and counted(twice) == counted(seen):
            left_out.append(source.name)
        elif twice:
            others = [each.name for each in chosen if shared(each.summary.seen, seen)]
            raise ValueError(
                f"{source.name} and {', '.join(others[:3])} both hold the samples {said(twice)}, "
                "and each has others besides: leave one of them out, and audit what is missing then"
            )
        else:
            chosen.append(source)
            held = joined([*held, *seen])
    return chosen, sorted(left_out)


def _unfinished(shards: Sequence[Shard]) -> list[str]:
    """Shards that are missing or stopped, if all of them are of the same number."""
    if len({shard.total for shard in shards}) != 1 or shards[0].total > 10_000:
        return []
    done = {shard.number for shard in shards if shard.complete}
    begun = {shard.number for shard in shards} - done
    return [
        f"{number}/{shards[0].total}" + (" (not finished)" if number in begun else "")
        for number in range(1, shards[0].total + 1)
        if number not in done
    ]
