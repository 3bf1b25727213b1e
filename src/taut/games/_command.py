"""What `taut game` does: read, solve while Ctrl-C can still stop it, and show."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taut._text import cells
from taut.games._anneal import Annealed, anneal
from taut.games._files import Payoffs, read
from taut.games._logit import logit_equilibrium
from taut.games._logit_answer import LogitEquilibrium
from taut.games._plot import ENDINGS, plot_gap
from taut.games._solve import Solution, solve

Answer = Solution | Annealed | LogitEquilibrium


class Options(NamedTuple):
    """The options of the command."""

    tau: float | None
    nash: bool
    method: str
    tolerance: float | None
    max_iterations: int | None
    damping: float
    plot: Path | None
    as_json: bool
    show: int


def run(file: Path, options: Options) -> bool:
    """Solve the game in a file and print the answer; whether what was asked for was reached."""
    _check(options)
    payoffs = read(file)
    gaps: list[float] = []
    with _watching(gaps, keep=options.plot is not None, quiet=options.as_json) as watch:
        answer = _solve(payoffs, options, watch)
    if options.as_json:
        print(json.dumps(_record(payoffs, answer, options), indent=1, ensure_ascii=True))
    else:
        _show(payoffs, answer, options)
    if options.plot is not None and isinstance(answer, Solution):  # last: the answer is safe then
        found = (answer.certificate, answer.target, options.plot)
        plot_gap(gaps or [answer.gap], *found, method=options.method)
    return bool(answer.converged)


def _check(options: Options) -> None:
    """Refuse what cannot be meant before the work, not after it."""
    if options.nash and options.tau is not None:
        raise ValueError("--nash follows tau to 0: give one of --nash and --tau")
    if not options.nash and options.tau is None:
        raise ValueError("give --tau, a temperature in units of payoff, or --nash")
    if options.tau is not None and not options.tau > 0:
        raise ValueError(f"--tau must be > 0, got {options.tau}; for tau -> 0 use --nash")
    if options.nash and (options.plot, options.method, options.damping) != (None, "auto", 1.0):
        raise ValueError("--plot, --method and --damping belong to --tau, not to --nash")
    if options.plot is not None:
        if options.plot.is_dir():
            raise ValueError(f"the plot {options.plot} is a directory; give a file")
        if options.plot.suffix.lower() not in ENDINGS:
            raise ValueError(f"the plot {options.plot} must end in {', '.join(ENDINGS)}")
        if not options.plot.resolve().parent.is_dir():
            raise ValueError(f"there is no folder {options.plot.resolve().parent} for the plot")
    if options.show < 0:
        raise ValueError(f"--show must be at least 0, got {options.show}")


def _solve(payoffs: Payoffs, options: Options, watch: Any) -> Answer:
    """Hand the game to the solver it needs."""
    given: dict[str, Any] = {"callback": watch}
    if options.tolerance is not None:
        given["tolerance"] = options.tolerance
    if options.max_iterations is not None:
        given["max_iterations"] = options.max_iterations
    if options.nash:
        return anneal(payoffs.costs, **given)
    tau = float(options.tau or 0.0)
    if payoffs.zero_sum:
        return solve(payoffs.costs, tau, method=options.method, damping=options.damping, **given)
    if options.method != "auto" or options.plot is not None or options.damping != 1:
        raise ValueError(
            "--method, --damping and --plot belong to zero-sum games; this one has two matrices"
        )
    return logit_equilibrium(payoffs.row, payoffs.column, tau, **given)


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


def _record(payoffs: Payoffs, answer: Answer, options: Options) -> dict[str, Any]:
    """The answer as plain numbers, with what they mean."""
    n, m = payoffs.row.shape
    game = {
        "zero_sum": payoffs.zero_sum,
        "row_player": "pays" if payoffs.zero_sum else "gains",
        "strategies": [n, m],
        "row_names": payoffs.row_names,
        "column_names": payoffs.column_names,
        "tau": options.tau,
    }
    return {**game, **answer.to_dict()}


def _show(payoffs: Payoffs, answer: Answer, options: Options) -> None:
    """The answer as text: what was found, how good it is, and the strategies."""
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
        order = np.argsort(-strategy, kind="stable")[: options.show]
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
