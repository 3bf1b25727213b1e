"""`taut branches`: the logit equilibria of a small game along their branches."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

from taut._base.terminal_text import cells
from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples
from taut.cli.options import AsJson

app = typer.Typer()


@app.command(
    cls=Command,
    epilog=examples(
        "taut branches chicken.csv --temperature 0.01",
        "taut branches three_players.npy --temperature 0.1 --plot branches.svg",
    ),
)
def branches(
    file: Annotated[
        Path,
        typer.Argument(
            help="File of payoffs, as for taut game; .npy, .nfg and .efg also for more players."
        ),
    ],
    temperature: Annotated[float, typer.Option(help="Lowest temperature > 0, in units of payoff.")],
    starts: Annotated[
        int, typer.Option(help="Random starting points at each of five temperatures.")
    ] = 40,
    seed: Annotated[int, typer.Option(help="Seed of the random starting points.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw player 1's first strategy along the branches: .svg, .png or .html.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Follow the logit equilibria of a small game, and certify each.

    Two matrices are payoffs that both players maximise; one matrix is
    what the row player pays. That all equilibria were found is not
    proved. Exits with 0 if the indices of those found sum to 1, as they
    must, 3 if not, and 2 if the input is wrong.
    """
    with explained("branches", "plot"):
        from taut import games

        if plot is not None:
            games.check_plot(plot)
        payoffs = games.read_players(file)
        found = games.logit_branches(payoffs, temperature, starts=starts, seed=seed)
        if json:
            print(json_text.dumps(found.to_dict(), indent=1, ensure_ascii=True))
        else:
            _show(found)
        if plot is not None:
            games.plot_branches(found, plot)
    raise typer.Exit(0 if found.balanced else 3)


def _show(found: Any) -> None:
    """The equilibria and the branches as text."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    facts = Table(show_header=False, box=None, pad_edge=False)
    for name, text in found.facts():
        facts.add_row(*cells(name, text))
    console.print(facts)
    table = Table(title="equilibria", title_justify="left")
    players = len(found.equilibria.strategies)
    for name in (*(f"player {k + 1}" for k in range(players)), "exploitability", "distance"):
        table.add_column(name, justify="right")
    for point in found.equilibria:
        own = (" ".join(f"{p:.4f}" for p in strategy) for strategy in point.strategies)
        distance = f"{point.distance.upper:.1e}" if point.proved else "not proved"
        table.add_row(*cells(*own, f"{max(point.exploitability.upper):.2e}", distance))
    console.print(table)
    for branch in found.branches:
        console.print(str(branch), markup=False)
