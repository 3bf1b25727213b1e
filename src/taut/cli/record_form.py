"""In which form a record is given out: on the terminal with a page, as JSON, as Parquet."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from taut._base.optional import needing
from taut._base.terminal_text import say

if TYPE_CHECKING:
    from taut.audit import Record


class RecordForm(NamedTuple):
    """What a command does with a record besides writing it to its file.

    Attributes
    ----------
    show
        Number of heads to list.
    as_json
        Print the record as one JSON object instead of tables.
    parquet
        Also write the heads as Parquet.
    """

    show: int
    as_json: bool = False
    parquet: bool = False

    def check(self) -> None:
        """Raise an error if packages are missing, before hours of work."""
        if self.parquet:
            with needing("--parquet needs pyarrow", "data"):
                import pyarrow  # noqa: F401

    def give(self, record: Record) -> None:
        """Show a record that is kept in a file, and write what belongs beside it."""
        if not record.samples:
            if record.shard is not None and record.shard.complete:
                say(f"{record.shard} has no samples: there are fewer batches", file=sys.stderr)
            return
        assert record.file is not None
        if self.as_json:
            print(record.to_json())
        else:
            self._show(record, record.file)
        if self.parquet:
            record.to_parquet(table := record.file.with_suffix(".parquet"))
            self._say(f"heads: {table}")

    def _show(self, record: Record, file: Path) -> None:
        from taut.audit import write_report
        from taut.cli.record_table import show_record

        show_record(record, self.show)
        say(f"record: {file}")
        if record.shard is None:
            write_report(record, page := file.with_suffix(".html"))
            say(f"report: {page} (open it in a web browser)")
        else:
            say(f"When all {record.shard.total} shards are done: taut merge {file.parent}")

    def _say(self, words: str) -> None:
        """Beside JSON, which has standard output for itself, on standard error."""
        say(words, file=sys.stderr if self.as_json else None)


def is_first_process() -> bool:
    """Whether this process is the one that speaks, of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"
