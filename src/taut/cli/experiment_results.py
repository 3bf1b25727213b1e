"""Results of experiments on the terminal: run them, write their pages, show their claims."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from taut._base.terminal_text import cells, say
from taut.reproduce import EXPERIMENTS, TRAININGS, Options, Result, run, unused_options, write

AGREES = {True: "yes", False: "no", None: "–"}


def list_experiments() -> None:
    """Print the experiments and what they show."""
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "what it shows", box=None)
    for name, experiment in EXPERIMENTS.items():
        table.add_row(name, experiment.summary)
    table.add_row("all", "all of the above")
    for name, experiment in TRAININGS.items():
        table.add_row(name, experiment.summary)
    Console().print(table)


def reproduce(name: str, options: Options, command: str) -> bool:
    """Run one experiment or all of them; return whether each of them could be run.

    With ``all``, an experiment that lacks its models, data or packages does not stop the others.
    """
    if name != "all":
        _one(name, options, command)
        return True
    each_own = {each: _own(each, options) for each in EXPERIMENTS}
    missing = {}
    for each in EXPERIMENTS:
        try:
            _one(each, each_own[each], command.replace(" all", f" {each}", 1))
        except (ValueError, OSError, ImportError, RuntimeError) as error:
            missing[each] = str(error)
            say(f"{each}: not run: {error}")
            say("")
    if missing:
        say(f"not run: {', '.join(missing)}")
    return not missing


def _own(name: str, options: Options) -> Options:
    """The options of one experiment: with ``all``, models and data are given as figure-1=place."""
    for given in (*options.models, *options.data):
        if given.partition("=")[0] not in EXPERIMENTS:
            raise ValueError(
                f"with all, say which experiment is meant: figure-1={given} instead of {given}"
            )
    mine = f"{name}="
    models, data = (
        tuple(given.removeprefix(mine) for given in asked if given.startswith(mine))
        for asked in (options.models, options.data)
    )
    return options._replace(models=models, data=data)


def _one(name: str, options: Options, command: str) -> None:
    began = time.monotonic()
    if unused := unused_options(name, options):
        said = ", ".join(f"--{option}" for option in unused)
        say(f"{name} does not use {said}", file=sys.stderr)
    result = run(name, options)
    show_result(result, options.folder, command, f"{time.monotonic() - began:.0f} s; ")


def show_result(result: Result, folder: Path, command: str, before: str = "") -> None:
    """Write the page of a result, show its claims, and say where the page is."""
    files = write(result, folder, command)
    _show(result)
    say(f"{before}page: {files[1]}")
    say("")


def _show(result: Result) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(*cells(result.title), style="bold")
    header: Sequence[str] = result.claims_header
    rows: Sequence[Sequence[str]] = [
        (claim.statement, claim.paper, claim.found, AGREES[claim.agrees]) for claim in result.claims
    ]
    if not rows and result.tables:  # nothing to compare with the paper: the numbers
        header, rows = result.tables[0].header, result.tables[0].rows
    table = Table(box=None)
    for head in cells(*header):
        table.add_column(head)
    for row in rows:
        table.add_row(*cells(*row))
    console.print(table)
