"""The commands that make and show audits: `audit`, `report`, `compare` and `ls`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from taut._cli import numbers, said, typer
from taut._text import printable, say

app = typer.Typer()


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
        raise typer.BadParameter(printable(f"cannot read {file}: {error.strerror}")) from None
    except ValueError as error:
        raise typer.BadParameter(printable(f"{file} is no TOML: {error}")) from None
    known = {parameter.name for parameter in context.command.params} - {"config"}
    given = {key.replace("-", "_"): value for key, value in read.items()}
    for key in ("p", "epsilons"):
        if isinstance(given.get(key), list):
            given[key] = ",".join(map(str, given[key]))
    if unknown := sorted(set(given) - known):
        raise typer.BadParameter(printable(f"{file} has unknown options: {', '.join(unknown)}"))
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
    with said("audit", "hf", "report", "torch"):
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
    with said("report", "report", "torch"):
        from taut.audit import Record, save_picture, write_report

        found = Record.load(record)
        page = record.with_suffix(".html") if output is None else output
        write_report(found, page)
        say(f"report: {page}")
        if picture is not None:
            save_picture(found, picture)
            say(f"picture: {picture}")


@app.command()
def compare(
    records: Annotated[list[Path], typer.Argument(help="JSON files of audits, two or more.")],
    show: Annotated[int, typer.Option(help="Heads to list, those that changed most first.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare audits: models, or one model before and after training."""
    with said("compare", "report", "torch"):
        from taut.audit._show_many import compared

        compared(records, show, as_json=json)


@app.command("ls")
def list_records(
    folder: Annotated[Path, typer.Argument(help="Where audits were kept.")] = Path("taut-audit"),
) -> None:
    """List the audits in a folder."""
    with said("ls", "report", "torch"):
        from taut.audit._show_many import listed

        listed(folder)
