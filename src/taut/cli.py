"""The command line. A command imports what it needs itself, so that `taut --help` is instant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from taut._cli import said, typer
from taut.cli_audit import app as audit
from taut.cli_reproduce import app as reproduce

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Measure, bound and control how sensitive softmax and attention are.",
)


def _version(asked: bool) -> None:
    if asked:
        import taut

        typer.echo(f"taut {taut.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


@app.command()
def game(
    file: Annotated[
        Path, typer.Argument(help="Payoffs: .csv, .tsv, .txt, .json, .npy, or Gambit's .nfg, .efg.")
    ],
    tau: Annotated[
        float | None, typer.Option(help="Temperature > 0, in units of payoff (lambda = 1/tau).")
    ] = None,
    nash: Annotated[
        bool, typer.Option("--nash", help="Follow tau to 0: a Nash equilibrium (zero-sum games).")
    ] = False,
    method: Annotated[str, typer.Option(help="auto, dsfp, predictive or newton.")] = "auto",
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Gap that is wanted, as a fraction of tau or of the range of payoffs, whichever "
            "is smaller (1e-10 by default); with --nash exploitability over range (1e-6)."
        ),
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="Iterations before giving up; the answer then says so.")
    ] = None,
    damping: Annotated[float, typer.Option(help="Of --method dsfp, in (0, 1].")] = 1.0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw gap against iterations into this .svg, .png or .html file."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    show: Annotated[
        int, typer.Option(help="Strategies to list for each player, most likely first.")
    ] = 20,
) -> None:
    """Solve a two-player game with entropy, and say how good the answer is.

    One matrix is a zero-sum game: the row player pays, the column player receives. Two are payoffs
    that both players maximise. The exit code is 0 if what was asked for is reached, 3 if not, and
    2 if the input is wrong or something cannot be written.
    """
    from taut.games._command import Options, run

    options = Options(
        tau, nash, method, tolerance, max_iterations, damping, plot, as_json=json, show=show
    )
    with said("game", "plot"):
        reached = run(file, options)
    raise typer.Exit(0 if reached else 3)


@app.command()
def certify(
    model: Annotated[
        str, typer.Argument(help="A folder or Hub id of Hugging Face, or module:function.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="Text, a .txt file (one input a line), images, or tensors (.npy, .pt, "
            ".safetensors). May be given several times."
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            help="With --inputs: bound all inputs that near. With --shape: tokens of at most this "
            "length."
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Instead of --inputs: all inputs of tokens,width or channels,h,w."),
    ] = None,
    context_shape: Annotated[
        str | None, typer.Option(help="The same for the encoder of encoder-decoder models.")
    ] = None,
    norm: Annotated[
        str, typer.Option(help="l2 over all tokens, or token, the largest one.")
    ] = "l2",
    local: Annotated[
        str,
        typer.Option(
            help="The derivative at the inputs: jacobian (exact), probe (from random directions, "
            "with its probability), auto, or no."
        ),
    ] = "auto",
    classify: Annotated[
        bool, typer.Option("--classify", help="Certified l2 radius of each input's class.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="auto, float16, bfloat16, float32, float64.")] = "auto",
    revision: Annotated[str | None, typer.Option(help="Of a model of the Hub.")] = None,
    limit: Annotated[int, typer.Option(help="Inputs at most.")] = 16,
    max_length: Annotated[int, typer.Option(help="Tokens of an input at most.")] = 128,
    seed: Annotated[int, typer.Option(help="Of random directions.")] = 0,
    depth: Annotated[int, typer.Option(help="Depth of the table of modules.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
) -> None:
    """Bound how far a model's output can move with its input, and say where that comes from.

    Models of text are bounded from their word embeddings, models of images from the pixels. The
    exit code is 0, or 2 if the input is wrong or a module has no rule.
    """
    with said("certify", "hf", "torch"):
        from taut.torch._command import Options, run

        options = Options(
            inputs or [], radius, shape, context_shape, norm, local, classify, dtype, revision,
            limit, max_length, seed, depth, as_json=json, trust_remote_code=trust_remote_code,
        )  # fmt: skip
        run(model, options)


@app.command()
def env() -> None:
    """Say which versions of taut and of what it works with are installed."""
    import platform
    from importlib import metadata

    typer.echo(f"python {platform.python_version()}, {platform.platform()}")
    known = ("taut", "numpy", "numba", "torch", "transformers", "safetensors", "jax", "jinja2",
             "accelerate", "tokenizers", "sacrebleu")  # fmt: skip
    for name in known:
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{name} is not installed")


app.add_typer(audit)  # without a name: its commands are ours
app.add_typer(reproduce, name="reproduce")


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without × shows ? instead of failing
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()


if __name__ == "__main__":
    main()
