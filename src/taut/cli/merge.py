"""`taut merge`: one record of several shards, parts and stopped runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from taut._base.terminal_text import say
from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples
from taut.cli.options import Parquet
from taut.cli.record_form import RecordForm

if TYPE_CHECKING:
    from taut.audit import Merged

app = typer.Typer()


@app.command(
    cls=Command,
    epilog=examples(
        "taut merge taut-audit",
        "taut merge shards/*.json --output whole.json",
    ),
)
def merge(
    records: Annotated[
        list[Path],
        typer.Argument(help="JSON files of shards or of stopped audits, or folders of them."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of the merged record; by default that of the whole audit, beside the first "
            "record.",
        ),
    ] = None,
    show: Annotated[
        int, typer.Option(help="Number of heads to list, the most sensitive first.")
    ] = 10,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record as one JSON object.")
    ] = False,
    parquet: Parquet = False,
) -> None:
    """Merge records of one audit: shards, parts of processes, stopped runs.

    The result is the record of one run over all of their samples, to the last
    bit. The records that are merged are left alone. Exits with 0 if all of the
    data was seen, 3 if samples are missing, and 2 if records do not belong
    together, overlap or are damaged; then nothing is written.
    """
    with explained("merge", "report", "torch"):
        from taut.audit import merge_files

        form = RecordForm(show, as_json=json, parquet=parquet)
        form.check()
        found = merge_files(records, output)
        form.give(found.record)
        _say_missing(found, goes_on=output is None)
    raise typer.Exit(0 if found.record.complete else 3)


def _say_missing(found: Merged, *, goes_on: bool) -> None:
    """Samples that no record holds, and records that hold nothing new."""
    if found.left_out:
        names = ", ".join(found.left_out[:3]) + (", ..." if len(found.left_out) > 3 else "")
        _say(f"left out, as all of their samples are in other records: {names}")
    if found.shards:
        more = f", ... ({len(found.shards)} in all)" if len(found.shards) > 20 else ""
        _say(f"missing shards: {', '.join(found.shards[:20])}{more}")
    if found.missing:
        total = found.record.data["samples"]
        gone = f"{total - found.record.samples} of {total} samples are missing"
        again = ", or run the audit without --shard, which goes on from here" if goes_on else ""
        _say(
            f"the record is not complete: {gone} ({found.missing_text}); audit what is missing and "
            f"merge again{again}"
        )


def _say(words: str) -> None:
    say(f"taut merge: {words}", file=sys.stderr)
