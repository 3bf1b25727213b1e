"""The commands of `taut reproduce`: the papers' experiments."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

from taut._cli import numbers, said, typer
from taut.reproduce import EXPERIMENTS

app = typer.Typer(
    invoke_without_command=True, help="Run the papers' experiments, their numbers beside one's own."
)
Output = Annotated[Path, typer.Option(help="Folder of records, pages, figures and runs.")]
FOLDER = Path("taut-reproduce")


@app.callback()
def listed(context: typer.Context) -> None:
    """The list of experiments, if none is named."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        with said("reproduce", "data", "hf", "plot", "torch"):
            from taut.reproduce._command import listed

            listed()


def experiment(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: minutes for all.")] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(help="For figures: folder, Hub id or file, instead of the paper's models."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="For figures: as for taut audit, instead of the paper's data sets."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Images, prompts or states at most; the paper's if not given."),
    ] = None,
    p: Annotated[str, typer.Option(help="Exponents of norms.")] = "1,2,4,8,inf",
    epsilons: Annotated[str, typer.Option(help="Step sizes.")] = "1e-3,1e-2,1e-1,1,10",
    scales: Annotated[str, typer.Option(help="Inverse temperatures, for figure-4.")] = "0.5,1,2,4",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    output_dir: Output = FOLDER,
) -> None:
    """Run an experiment of "Softmax is 1/2-Lipschitz".

    Writes a JSON record, a Markdown page and a figure (SVG and PNG). Long runs go on from where
    they were stopped. The exit code is 0, 1 if one of all could not be run, and 2 if the input is
    wrong.
    """
    with said("reproduce", "data", "hf", "plot", "torch"):
        from taut.reproduce import Options
        from taut.reproduce._command import reproduce

        options = Options(
            quick, seed, tuple(numbers(p, "p")), tuple(numbers(epsilons, "epsilons")),
            tuple(model or ()), tuple(data or ()), limit, tuple(numbers(scales, "scales")),
            output_dir,
        )  # fmt: skip
        complete = reproduce(str(context.info_name), options, _command_line())
    raise typer.Exit(0 if complete else 1)


for _name, _experiment in EXPERIMENTS.items():
    app.command(_name, short_help=_experiment.summary)(experiment)
app.command("all", short_help="all of these")(experiment)


Ways = Annotated[
    str,
    typer.Option(
        help="Ways to train, with commas between: base, VAR-I=STRENGTH, VAR-II=, VAR-III=, "
        "local=STRENGTH, cap=SIGMA, cosine; base and the paper's variants if not given.",
    ),
]
Seeds = Annotated[int, typer.Option(help="Runs of each way.")]
Size = Annotated[str, typer.Option(help="tiny, small, base or big.")]
Family = Annotated[str, typer.Option(help="marian or bart.")]
Tokens = Annotated[str, typer.Option(help="bpe, unigram or characters.")]
Vocabulary = Annotated[int, typer.Option(help="Pieces of text, at most.")]
Longest = Annotated[
    int | None,
    typer.Option(
        help="Pieces of one text, at most; 64, or 256 for characters.", show_default=False
    ),
]
Steps = Annotated[int, typer.Option(help="Steps of the optimiser, at most.")]
Pieces = Annotated[int, typer.Option(help="Pieces in a batch of one process.")]
Accumulate = Annotated[int, typer.Option(help="Batches in a step.")]
Rate = Annotated[float, typer.Option(help="Largest learning rate.")]
Warmup = Annotated[int, typer.Option(help="Steps up to it.")]
Every = Annotated[int, typer.Option(help="Steps between two validations.")]
Patience = Annotated[int, typer.Option(help="Validations without gain that end a run.")]
Precision = Annotated[str, typer.Option(help="no, fp16 or bf16.")]
Limit = Annotated[int | None, typer.Option(help="Pairs to train on, at most.")]
HeldOut = Annotated[int | None, typer.Option(help="Pairs of validation and of test, at most.")]
Jobs = Annotated[int, typer.Option(help="Runs at a time; they share the cores.")]


@app.command()
def translation(  # arguments are read from the context, all alike
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            help="A folder with train.de, train.en and the like; catalogs (translations of "
            "installed programs); iwslt14-de-en and other sets of the paper; hf:NAME:CONFIGURATION."
        ),
    ] = "catalogs",
    source: Annotated[str, typer.Option("--from", help="Language.")] = "de",
    target: Annotated[str, typer.Option("--to", help="Language.")] = "en",
    test: Annotated[
        str | None, typer.Option(help="Of a folder with several test sets: which.")
    ] = None,
    ntrex: Annotated[
        str | None, typer.Option(help="A folder with NTREX, as a second test set.")
    ] = None,
    ways: Ways = "",
    seeds: Seeds = 3,
    size: Size = "tiny",
    family: Family = "marian",
    tokens: Tokens = "bpe",
    vocabulary: Vocabulary = 4000,
    longest: Longest = None,
    steps: Steps = 2000,
    pieces: Pieces = 1500,
    accumulate: Accumulate = 1,
    rate: Rate = 2e-3,
    warmup: Warmup = 400,
    every: Every = 250,
    patience: Patience = 5,
    precision: Precision = "no",
    limit: Limit = None,
    held_out: HeldOut = None,
    jobs: Jobs = 1,
    output_dir: Output = FOLDER,
) -> None:
    """Translation under orthogonality constraints, as in "On Orthogonality Constraints".

    Trains every way from every seed, decodes with 4 beams, scores with sacrebleu and compares. Runs
    that are done are not done again, those that were stopped go on: give the same command. Several
    processes for one run: accelerate launch -m taut reproduce translation ...
    """
    _sequences("translation", context)


@app.command()
def dialogue(  # arguments are read from the context, all alike
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            help="A folder with DailyDialog (its zip files, or the texts in them), or "
            "persona-chat (of the Hub)."
        ),
    ] = "persona-chat",
    turns: Annotated[int, typer.Option(help="Turns of a dialogue before a reply.")] = 1,
    ways: Ways = "",
    seeds: Seeds = 3,
    size: Size = "tiny",
    family: Family = "marian",
    tokens: Tokens = "bpe",
    vocabulary: Vocabulary = 4000,
    longest: Longest = None,
    steps: Steps = 6000,
    pieces: Pieces = 500,
    accumulate: Accumulate = 1,
    rate: Rate = 1e-3,
    warmup: Warmup = 400,
    every: Every = 500,
    patience: Patience = 5,
    precision: Precision = "no",
    limit: Limit = None,
    held_out: HeldOut = None,
    jobs: Jobs = 1,
    output_dir: Output = FOLDER,
) -> None:
    """Replies in dialogues under orthogonality constraints, with the paper's nine measures.

    What a reply owes to its context is learnt slowly: many small steps, or all replies are one.
    """
    _sequences("dialogue", context)


def _sequences(name: str, context: typer.Context) -> None:
    """Run a task with the arguments of the command: what a recipe has goes into it."""
    with said(f"reproduce {name}", "data", "hf", "plot", "sequences", "torch"):
        from dataclasses import fields

        from taut.reproduce import _command, _sequences
        from taut.sequences import Recipe

        given = dict(context.params)
        ways = tuple(way.strip() for way in given.pop("ways").split(",") if way.strip())
        recipe = {f.name: given.pop(f.name) for f in fields(Recipe) if f.name in given}
        if recipe["longest"] is None:
            recipe["longest"] = 256 if recipe["tokens"] == "characters" else 64
        if ways:
            given["ways"] = ways
        task = _sequences.Task(**given, recipe=recipe)
        result = getattr(_sequences, name)(task)
        if os.environ.get("RANK", "0") == "0":  # of several processes the first one writes
            _command.shown(result, task.output_dir, _command_line())


def _command_line() -> str:
    """As it was typed, without the folders of the program itself."""
    return shlex.join(["taut", *sys.argv[1:]])
