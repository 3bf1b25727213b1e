"""The command line. A command imports what it needs itself, so that `taut --help` is instant."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from taut._cli import numbers, said, typer
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
    with said("game"):
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
    with said("certify"):
        from taut.torch._command import Options, run

        options = Options(
            inputs or [], radius, shape, context_shape, norm, local, classify, dtype, revision,
            limit, max_length, seed, depth, as_json=json, trust_remote_code=trust_remote_code,
        )  # fmt: skip
        run(model, options)


def _config(context: typer.Context, file: Path | None) -> Path | None:
    """Options from a file: they take the place of the defaults, and what is typed goes before."""
    if file is None:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise typer.BadParameter(f"{file} is no TOML: {error}") from None
    known = {parameter.name for parameter in context.command.params} - {"config"}
    given = {key.replace("-", "_"): value for key, value in read.items()}
    for key in ("p", "epsilons"):
        if isinstance(given.get(key), list):
            given[key] = ",".join(map(str, given[key]))
    if unknown := sorted(set(given) - known):
        raise typer.BadParameter(f"{file} has unknown options: {', '.join(unknown)}")
    context.default_map = given
    return file


@app.command()
def audit(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A folder or Hub id of Hugging Face, a .gguf file, or module:function; the small "
            "models that ship with taut if not given.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Text, a text file (one sample a line), images or a folder of them, .wav files, "
            "tensors (.npy, .pt), a table (.jsonl, .csv, .parquet), or a data set of the "
            "Hub (hf:name:configuration:split)."
        ),
    ] = None,
    column: Annotated[str | None, typer.Option(help="Of a table: where its samples are.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or Hub id of the tokenizer, if not the model's.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto, float16, bfloat16, float32, float64.")] = "auto",
    device: Annotated[
        str, typer.Option(help="cpu, cuda, cuda:1, ..., or auto: spread over all there are.")
    ] = "cpu",
    batch_size: Annotated[int, typer.Option(help="Samples at a time.")] = 8,
    max_length: Annotated[int, typer.Option(help="Tokens of a sample at most.")] = 256,
    limit: Annotated[int, typer.Option(help="Samples at most.")] = 256,
    p: Annotated[
        str, typer.Option(help="Exponents: exact constants for 1, 2, inf, bounds for others.")
    ] = "1,2,4,inf",
    epsilons: Annotated[
        str, typer.Option(help="Step sizes of empirical constants; empty for none.")
    ] = "1e-3,1e-2,1e-1,1",
    threshold: Annotated[
        float, typer.Option(help="Count the rows whose constant in l2 is at least this.")
    ] = 0.45,
    logits: Annotated[
        bool, typer.Option("--logits", help="Also measure the final logits of the model.")
    ] = False,
    scale: Annotated[
        float, typer.Option(help="With --logits: the inverse temperature they are multiplied with.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the rows and directions of empirical ones.")] = 0,
    revision: Annotated[str | None, typer.Option(help="Of a model of the Hub.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Folder of the record.")] = Path("taut-audit"),
    config: Annotated[
        Path | None,
        typer.Option(help="Options from a TOML file.", callback=_config, is_eager=True),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record as one JSON object.")
    ] = False,
    show: Annotated[int, typer.Option(help="Heads to list, the most sensitive first.")] = 10,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
) -> None:
    """Watch every attention softmax of a model on data, and say how sensitive each head is.

    Ctrl-C leaves a valid record of what was seen, and the same command goes on from there. The exit
    code is 0, 3 if not all of the data was seen, and 2 if the input is wrong.
    """
    # Threads of PyTorch that wait by spinning would take the cores from the kernels in between.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with said("audit"):
        from taut.audit._command import Options, run

        options = Options(
            data or [], column, tokenizer, dtype, device, batch_size, max_length, limit,
            numbers(p, "p"), numbers(epsilons, "epsilons"), threshold,
            scale if logits else None, seed, revision, output_dir,
            as_json=json, show=show, trust_remote_code=trust_remote_code,
        )  # fmt: skip
        complete = run(model, options)
    raise typer.Exit(0 if complete else 3)


@app.command()
def report(
    record: Annotated[Path, typer.Argument(help="The JSON file of an audit.")],
    output: Annotated[
        Path | None, typer.Option(help="The HTML file; beside the record if not given.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the heat map of the mean constants (.svg).")
    ] = None,
) -> None:
    """Write the report of an audit: one HTML file that works offline."""
    with said("report"):
        from taut.audit import Record, save_picture, write_report

        found = Record.load(record)
        page = record.with_suffix(".html") if output is None else output
        write_report(found, page)
        typer.echo(f"report: {page}")
        if picture is not None:
            save_picture(found, picture)
            typer.echo(f"picture: {picture}")


@app.command()
def compare(
    records: Annotated[list[Path], typer.Argument(help="JSON files of audits, two or more.")],
    show: Annotated[int, typer.Option(help="Heads to list, those that changed most first.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare audits: models, or one model before and after training."""
    with said("compare"):
        from taut.audit._show import compared

        compared(records, show, as_json=json)


@app.command("ls")
def list_records(
    folder: Annotated[Path, typer.Argument(help="Where audits were kept.")] = Path("taut-audit"),
) -> None:
    """List the audits in a folder."""
    with said("ls"):
        from taut.audit._show import listed

        listed(folder)


@app.command()
def env() -> None:
    """Say which versions of taut and of what it works with are installed."""
    import platform
    from importlib import metadata

    typer.echo(f"python {platform.python_version()}, {platform.platform()}")
    known = ("taut", "numpy", "numba", "torch", "transformers", "safetensors", "jax", "jinja2")
    for name in known:
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{name} is not installed")


app.add_typer(reproduce, name="reproduce")


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without × shows ? instead of failing
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()


if __name__ == "__main__":
    main()
