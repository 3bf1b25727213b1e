"""`taut game`: solve a two-player game from a file."""

from __future__ import annotations

import json as json_text
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
        "taut game pennies.csv --temperature 0.1",
        "taut game poker.efg --nash --json",
    ),
)
def game(
    file: Annotated[
        Path,
        typer.Argument(
            help="File of payoffs: .csv, .tsv, .txt, .json, .npy, or Gambit's .nfg, .efg."
        ),
    ],
    temperature: Annotated[
        float | None, typer.Option(help="Temperature > 0, in units of payoff.")
    ] = None,
    nash: Annotated[
        bool,
        typer.Option(
            "--nash", help="Lower the temperature to 0: a Nash equilibrium (zero-sum games)."
        ),
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Solver: auto (the default), dsfp, predictive or newton."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Largest gap, as a fraction of the temperature or of the range of payoffs, "
            "whichever is smaller (1e-10 by default); with --nash, the exploitability as a "
            "fraction of the range (1e-6)."
        ),
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="Iterations before giving up; the answer then says so.")
    ] = None,
    damping: Annotated[
        float | None, typer.Option(help="Step of --method dsfp, in (0, 1]; 1 by default.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the gap against iterations into this .svg, .png or .html file.",
        ),
    ] = None,
    json: AsJson = False,
    show: Annotated[
        int, typer.Option(help="Number of strategies to list for each player, most likely first.")
    ] = 20,
) -> None:
    """Solve an entropy-regularised two-player game, and certify the answer.

    One matrix is a zero-sum game: the row player pays, the column player
    receives. Two matrices are payoffs that both players maximise. Exits
    with 0 if the tolerance is reached, 3 if not, and 2 if the input is
    wrong or a file cannot be written.
    """
    with explained("game", "plot"):
        _check(temperature, nash, method, damping, plot, show)
        from taut import games

        if plot is not None:
            games.check_plot(plot)
        payoffs = games.read(file)
        if plot is not None and not payoffs.zero_sum:
            raise ValueError("--plot is only for zero-sum games; this one has two matrices")
        gaps: list[float] = []
        with _watching(gaps, keep=plot is not None, quiet=json) as watch:
            answer = games.equilibrium(
                payoffs, temperature, method=method, damping=damping, tolerance=tolerance,
                max_iterations=max_iterations, callback=watch,
            )  # fmt: skip
        if json:
            told = {**payoffs.to_dict(), "temperature": temperature, **answer.to_dict()}
            print(json_text.dumps(told, indent=1, ensure_ascii=True))
        else:
            _show(payoffs, answer, show)
        if plot is not None and isinstance(answer, games.Solution):  # last: the answer is safe
            drawn = (answer.certificate, answer.target, plot)
            games.plot_gap(gaps or [answer.gap], *drawn, method=method or "auto")
    raise typer.Exit(0 if answer.converged else 3)


def _check(
    temperature: float | None,
    nash: bool,
    method: str | None,
    damping: float | None,
    plot: Path | None,
    show: int,
) -> None:
    """Refuse what cannot be meant before the work, not after it."""
    if nash and temperature is not None:
        raise ValueError("--nash lowers the temperature to 0: give one of --nash and --temperature")
    if not nash and temperature is None:
        raise ValueError("give --temperature, a temperature in units of payoff, or --nash")
    if temperature is not None and not temperature > 0:
        raise ValueError(f"--temperature must be > 0, got {temperature}; --nash lowers it to 0")
    if nash and (plot, method or "auto", damping) != (None, "auto", None):
        raise ValueError("--plot, --method and --damping belong to --temperature, not to --nash")
    if show < 0:
        raise ValueError(f"--show must be at least 0, got {show}")


@contextmanager
def _watching(gaps: list[float], *, keep: bool, quiet: bool) -> Iterator[Any]:
    """A callback that may keep gaps, shows them on a terminal, and stops the run at Ctrl-C."""
    from rich.console import Console

    asked: list[bool] = []

    def stop(_signal: int, _frame: Any) -> None:
        if asked:  # a second time: at once
            raise KeyboardInterrupt
        asked.append(True)

    console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
    before = signal.signal(signal.SIGINT, stop)
    try:
        with console.status("solving") as status:
            shown = 0.0

            def watch(count: float, now: float) -> bool:
                nonlocal shown
                if keep:
                    gaps.append(now)
                if time.monotonic() > shown + 0.2:
                    shown = time.monotonic()
                    status.update(f"solving: {count:.4g}, {now:.3g} (Ctrl-C: best so far)")
                return bool(asked)

            yield watch
    finally:
        signal.signal(signal.SIGINT, before)


def _show(payoffs: Any, answer: Any, most: int) -> None:
    """The answer as text: what was found, how good it is, and the strategies."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    n, m = payoffs.row.shape
    kind = "zero-sum" if payoffs.zero_sum else "general-sum"
    console.print(f"{kind} game, {n} × {m} strategies", markup=False)
    facts = Table(show_header=False, box=None, pad_edge=False)
    for name, text in answer.facts():
        facts.add_row(*cells(name, text))
    console.print(facts)
    roles = (" (pays)", " (receives)") if payoffs.zero_sum else ("", "")
    for title, names, strategy in (
        (f"row player{roles[0]}", payoffs.row_names, answer.x),
        (f"column player{roles[1]}", payoffs.column_names, answer.y),
    ):
        order = np.argsort(-strategy, kind="stable")[:most]
        table = Table(title=title, title_justify="left")
        table.add_column("strategy")
        table.add_column("probability", justify="right")
        for k in order:
            label = names[k] if names else str(k + 1)
            table.add_row(*cells(label, f"{strategy[k]:.10f}"))
        if len(order):
            console.print(table)
        if len(order) < len(strategy):
            console.print(f"… and {len(strategy) - len(order)} more (--show)", markup=False)
    if not answer.converged:
        console.print(*cells(f"NOT CONVERGED: {answer}"), style="bold red")
