"""`taut explore`: a page to play with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from taut._base.terminal_text import say
from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples

app = typer.Typer()


@app.command(
    cls=Command,
    epilog=examples("taut explore", "taut explore --output softmax.html --no-open"),
)
def explore(
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="HTML file to write and open, to keep or to send to others."
        ),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the web browser.")
    ] = True,
) -> None:
    """Open an interactive page about softmax, attention and games; it works offline."""
    with explained("explore"):
        import webbrowser

        from taut.explore import open_address, write_page

        if output is not None:
            write_page(output)
        address = open_address(output)
        say(f"page: {address}")
        if open_ and not webbrowser.open(address):
            say("no web browser was found: open that address in one yourself")
