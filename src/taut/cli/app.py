"""The command line. Every command imports what it needs itself: `taut --help` is instant."""

from __future__ import annotations

import sys
from typing import Annotated

from taut.cli import (
    audit,
    branches,
    certify,
    compare,
    env,
    explore,
    game,
    ls,
    merge,
    report,
    reproduce,
)
from taut.cli.errors import typer
from taut.cli.help import CommandGroup, examples

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure, bound and control how sensitive softmax and attention are.",
    epilog=examples("taut audit", "taut audit gpt2 --data lines.txt", "taut COMMAND -h"),
)


def _version(asked: bool) -> None:
    if asked:
        import taut

        typer.echo(f"taut {taut.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


# In the order in which people come to use them.
for command in (audit, report, compare, ls, merge, certify, game, branches, explore):
    app.add_typer(command.app)  # without a name: its command is ours
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(env.app)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without × shows ? instead of failing
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="taut")


if __name__ == "__main__":
    main()
