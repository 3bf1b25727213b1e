"""`taut reproduce`: the papers' experiments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from taut.cli import reproduce_training
from taut.cli.errors import explained, typer
from taut.cli.help import Command, CommandGroup, examples
from taut.cli.options import comma_separated, command_line, numbers
from taut.reproduce import EXPERIMENTS, Options

app = typer.Typer(
    cls=CommandGroup,
    invoke_without_command=True,
    help="Run the papers' experiments, and set their numbers beside those found here.",
    epilog=examples("taut reproduce figure-1 --quick", "taut reproduce all --output-dir results"),
)
USUAL = Options()  # the defaults stand there


@app.callback()
def listed(context: typer.Context) -> None:
    """List the experiments if none is named."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        with explained("reproduce", "data", "hf", "plot", "torch"):
            from taut.cli.experiment_results import list_experiments

            list_experiments()


def experiment(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small sizes, so that all experiments take minutes.")
    ] = USUAL.quick,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Model for a figure, instead of the paper's: folder, Hub id or file.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|FOLDER",
            help="Data for a figure, as for taut audit, instead of the paper's; for certified-vit "
            "the folder of MNIST's test images.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Largest number of images, prompts or states; the paper's by default."),
    ] = None,
    p: Annotated[
        str, typer.Option(metavar="LIST", help="Exponents p of the norms.")
    ] = comma_separated(USUAL.norms),
    epsilons: Annotated[str, typer.Option(metavar="LIST", help="Step sizes.")] = comma_separated(
        USUAL.epsilons
    ),
    scales: Annotated[
        str, typer.Option(metavar="LIST", help="Inverse temperatures, for figure-4.")
    ] = comma_separated(USUAL.scales),
    seed: Annotated[
        int, typer.Option(help="Seed of random inputs, directions and models.")
    ] = USUAL.seed,
    output_dir: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for records, pages and figures.")
    ] = USUAL.folder,
) -> None:
    """Run one experiment, or all."""
    with explained("reproduce", "data", "hf", "plot", "torch"):
        from taut.cli.experiment_results import reproduce

        options = Options(
            quick, seed, numbers(p, "p"), numbers(epsilons, "epsilons"),
            tuple(model or ()), tuple(data or ()), limit, numbers(scales, "scales"),
            output_dir,
        )  # fmt: skip
        complete = reproduce(str(context.info_name), options, command_line())
    raise typer.Exit(0 if complete else 1)


WRITES = (
    "Writes a JSON record, a Markdown page and, where there are curves, a figure (SVG and PNG). "
    "The same command continues a long run that was stopped."
)


def _sentence(summary: str, paper: str = "") -> str:
    return f"{summary[0].upper()}{summary[1:]}{f' ({paper})' if paper else ''}."


def _help(name: str) -> str:
    each = EXPERIMENTS[name]
    *others, last = [f"--{option}" for option in ("quick", "seed", "output-dir", *each.takes)]
    return (
        f"{_sentence(each.summary, each.paper)}\n\n{WRITES} Exits with 0 on success, and 2 if the "
        f"input is wrong.\n\nUses {', '.join(others)} and {last}; the other options change nothing."
    )


for _name, _experiment in EXPERIMENTS.items():
    _typed = f"taut reproduce {_name}"
    _command = app.command(
        _name,
        cls=Command,
        short_help=_sentence(_experiment.summary),
        help=_help(_name),
        epilog=examples(f"{_typed} --quick", f"{_typed} --output-dir results"),
    )
    _command(experiment)
app.command(
    "all",
    cls=Command,
    short_help="All of the above.",
    help=f"Run every experiment except translation and dialogue.\n\n{WRITES} Exits "
    "with 0 on success, 1 if not every experiment could run, and 2 if the input is wrong.",
    epilog=examples("taut reproduce all --quick", "taut reproduce all --data figure-1=images/"),
)(experiment)
app.add_typer(reproduce_training.app)  # without a name: its commands are ours
