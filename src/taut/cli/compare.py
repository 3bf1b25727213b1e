"""`taut compare`: audits side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples
from taut.cli.options import AsJson

app = typer.Typer()


@app.command(
    cls=Command,
    epilog=examples(
        "taut compare before.json after.json",
        "taut compare before.json after.json --show 30",
    ),
)
def compare(
    records: Annotated[
        list[Path],
        typer.Argument(
            help="JSON files of two or more audits; or folders, one for each training, with a "
            "record for each step (step-100.json)."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page, an HTML file.")
    ] = None,
    show: Annotated[
        int, typer.Option(help="Number of heads to list, those that changed most first.")
    ] = 10,
    json: AsJson = False,
) -> None:
    """Compare audits: several models, or one model before and after training."""
    with explained("compare", "report", "torch"):
        from taut.cli.comparison_table import show_comparison

        show_comparison(records, show, as_json=json, page=output)
