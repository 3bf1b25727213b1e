"""`taut reproduce translation` and `taut reproduce dialogue`: experiments that train models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples
from taut.cli.options import command_line
from taut.reproduce import Options

app = typer.Typer()
FOLDER = Options().folder
OutputDir = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder for records, pages, figures and runs.")
]
Methods = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="Comma-separated training methods: base, VAR-I=STRENGTH, VAR-II=, VAR-III=, "
        "local=STRENGTH, cap=SIGMA, cosine; by default base and the paper's variants.",
    ),
]
Seeds = Annotated[int, typer.Option(help="Number of runs of each method, each from its own seed.")]
Size = Annotated[
    str, typer.Option(metavar="SIZE", help="Size of the model: tiny, small, base or big.")
]
Family = Annotated[
    str, typer.Option(metavar="NAME", help="Architecture of the model: marian or bart.")
]
TokenKind = Annotated[
    str, typer.Option(metavar="KIND", help="Kind of tokens: bpe, unigram or characters.")
]
Vocabulary = Annotated[int, typer.Option(help="Largest number of different tokens.")]
Longest = Annotated[
    int | None,
    typer.Option(
        help="Maximum number of tokens per text; by default 64, or 256 for characters.",
        show_default=False,
    ),
]
Steps = Annotated[int, typer.Option(help="Largest number of steps of the optimiser.")]
Pieces = Annotated[int, typer.Option(help="Number of tokens in a batch of one process.")]
Accumulate = Annotated[int, typer.Option(help="Number of batches in a step of the optimiser.")]
Rate = Annotated[float, typer.Option(help="Largest learning rate.")]
Warmup = Annotated[int, typer.Option(help="Number of warm-up steps of the learning rate.")]
Every = Annotated[int, typer.Option(help="Number of steps between two validations.")]
Patience = Annotated[
    int, typer.Option(help="End a run after this many validations without improvement.")
]
Precision = Annotated[str, typer.Option(metavar="TYPE", help="Mixed precision: no, fp16 or bf16.")]
Limit = Annotated[int | None, typer.Option(help="Largest number of pairs to train on.")]
HeldOut = Annotated[
    int | None, typer.Option(help="Largest number of pairs for validation and for test.")
]
Jobs = Annotated[int, typer.Option(help="Number of runs at the same time; they share the cores.")]


@app.command(
    cls=Command,
    epilog=examples(
        "taut reproduce translation --steps 200 --seeds 1",
        "taut reproduce translation --data multi30k --from de --to en --methods base,VAR-III=1e-6",
    ),
)
def translation(  # arguments are read from the context, all alike
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            metavar="FOLDER|NAME",
            help="Folder with train.de, train.en and the like; catalogs (translations of installed "
            "programs); iwslt14-de-en and other sets of the paper; hf:NAME:CONFIGURATION.",
        ),
    ] = "catalogs",
    source: Annotated[
        str, typer.Option("--from", metavar="LANGUAGE", help="Language to translate from.")
    ] = "de",
    target: Annotated[
        str, typer.Option("--to", metavar="LANGUAGE", help="Language to translate into.")
    ] = "en",
    test: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the test set, if the folder has several."),
    ] = None,
    ntrex: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder of NTREX, used as a second test set."),
    ] = None,
    methods: Methods = "",
    seeds: Seeds = 3,
    size: Size = "tiny",
    family: Family = "marian",
    tokens: TokenKind = "bpe",
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
    output_dir: OutputDir = FOLDER,
) -> None:
    """Translation under orthogonality constraints (Zhang et al. 2021).

    Trains every method from every seed, decodes with 4 beams, scores with
    sacrebleu and compares. The same command continues runs that were
    stopped and keeps those that are done. For several processes in one run:
    accelerate launch -m taut reproduce translation ...
    """
    _train("translation", context)


@app.command(
    cls=Command,
    epilog=examples(
        "taut reproduce dialogue --steps 200 --seeds 1",
        "taut reproduce dialogue --data dailydialog --methods base,cosine",
    ),
)
def dialogue(  # arguments are read from the context, all alike
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            metavar="FOLDER|NAME",
            help="Folder of DailyDialog (its zip files, or the texts in them), a file of "
            "PersonaChat (train_self_original.txt, with personas), or persona-chat (from the Hub).",
        ),
    ] = "persona-chat",
    turns: Annotated[int, typer.Option(help="Number of turns of a dialogue before a reply.")] = 1,
    methods: Methods = "",
    seeds: Seeds = 3,
    size: Size = "tiny",
    family: Family = "marian",
    tokens: TokenKind = "bpe",
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
    output_dir: OutputDir = FOLDER,
) -> None:
    """Replies in dialogues under orthogonality constraints (Zhang et al. 2021), by nine measures.

    Models learn slowly how a reply depends on its context: with few steps
    all replies are alike.
    """
    _train("dialogue", context)


def _train(name: str, context: typer.Context) -> None:
    """Run a task with the arguments of the command; those of a recipe go into it."""
    with explained(f"reproduce {name}", "data", "hf", "plot", "seq2seq", "torch"):
        from dataclasses import fields

        from taut.cli.experiment_results import show_result
        from taut.reproduce import run_training
        from taut.reproduce.seq2seq import Recipe, Task

        given = dict(context.params)
        methods = tuple(
            method.strip() for method in given.pop("methods").split(",") if method.strip()
        )
        recipe = {f.name: given.pop(f.name) for f in fields(Recipe) if f.name in given}
        if recipe["longest"] is None:
            recipe["longest"] = 256 if recipe["tokens"] == "characters" else 64
        if methods:
            given["methods"] = methods
        task = Task(**given, recipe=recipe)
        result = run_training(name, task)
        if os.environ.get("RANK", "0") == "0":  # of several processes the first one writes
            show_result(result, task.output_dir, command_line())
