"""`taut report`: the page of an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from taut._base.terminal_text import say
from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples
from taut.cli.options import Parquet

app = typer.Typer()


@app.command(
    cls=Command,
    epilog=examples(
        "taut report taut-audit/gpt2-1a2b.json",
        "taut report taut-audit/gpt2-1a2b.json --output gpt2.html --picture heads.svg",
    ),
)
def report(
    record: Annotated[Path, typer.Argument(help="JSON file of an audit.")],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file to write; by default beside the record."),
    ] = None,
    parquet: Parquet = False,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the heat map of the mean constants (.svg)."),
    ] = None,
) -> None:
    """Write the report of an audit: one HTML file that works offline."""
    with explained("report", "report", "torch"):
        from taut.audit import Record, save_picture, write_report

        found = Record.load(record)
        page = record.with_suffix(".html") if output is None else output
        if page.resolve() == record.resolve():
            raise ValueError(f"the page would take the place of {record}: give another --output")
        write_report(found, page)
        say(f"report: {page}")
        if parquet:
            found.to_parquet(table := record.with_suffix(".parquet"))
            say(f"heads: {table}")
        if picture is not None:
            save_picture(found, picture)
            say(f"picture: {picture}")
