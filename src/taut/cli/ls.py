"""`taut ls`: the audits in a folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from taut._base.terminal_text import say, shortened
from taut.cli.audit import FOLDER
from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples

app = typer.Typer()


@app.command("ls", cls=Command, epilog=examples("taut ls", "taut ls audits/2026"))
def list_records(
    folder: Annotated[Path, typer.Argument(help="Folder of audits.")] = FOLDER,
) -> None:
    """List the audits in a folder."""
    with explained("ls", "report", "torch"):
        show_folder(folder)


def show_folder(folder: Path) -> None:
    """Print a line for each record; other files are passed over."""
    from taut.audit import records_in

    found = records_in(folder)
    for entry in found:
        if entry.error:
            say(entry.error)
        else:
            state = "complete" if entry.complete else "partial"
            which = f", {entry.shard}" if entry.shard else ""
            source = f" of {shortened(entry.data, 60)}" if entry.data else ""
            mean = "" if math.isnan(entry.mean) else f", mean {entry.mean:.3f} ({entry.kind})"
            date = f", {entry.date[:16].replace('T', ' ')}" if entry.date else ""
            say(
                f"{entry.file}: {entry.name}{which}, {entry.samples} samples{source}{mean}, "
                f"{state}{date}"
            )
    if not found:
        say(f"no audits in {folder}")
