"""`taut audit`: measure every attention softmax of a model on data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from taut._base.settings import (
    ALL_QUERIES,
    CONSEQUENCE_SAMPLES,
    DRAWN_QUERIES,
    AuditSettings,
)
from taut._base.terminal_text import say
from taut.cli.config_file import read_config
from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples
from taut.cli.options import (
    Dtype,
    MaxLength,
    Parquet,
    Revision,
    TrustRemoteCode,
    comma_separated,
    command_line,
    numbers,
    queries_of,
)
from taut.cli.record_form import RecordForm, is_first_process

app = typer.Typer()
USUAL = AuditSettings()  # the defaults stand there
FOLDER = Path("taut-audit")
EMBEDDED = (
    "No model is given, so taut audits the two small GPT-2 models that come with it, on speeches "
    "from plays that they were not trained on, and compares them. embedded-plain was trained as "
    "usual, embedded-constrained with limits on its attention."
)


@app.command(
    cls=Command,
    epilog=examples(
        "taut audit",
        "taut audit gpt2 --data lines.txt",
        "taut audit ./my-model --data hf:Salesforce/wikitext:wikitext-2-raw-v1:test --limit 64",
    ),
)
def audit(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Folder or Hub id of a Hugging Face model, .gguf file, or module:function; by "
            "default the small models that come with taut.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT|FILE|FOLDER",
            help="Text, a text file (one sample a line), images or a folder of them, .wav files, "
            "tensors (.npy, .pt), a table (.jsonl, .csv, .parquet), or a data set on the "
            "Hub (hf:name:config:split). Repeat the option for several of them.",
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of a table that holds the samples.")
    ] = USUAL.column,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Folder or Hub id of the tokenizer, if not the model's."
        ),
    ] = USUAL.tokenizer,
    dtype: Dtype = USUAL.dtype,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="Device: cpu, cuda, cuda:1, ..., or auto to spread over all devices.",
        ),
    ] = USUAL.device,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = USUAL.batch_size,
    max_length: MaxLength = USUAL.max_length,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of samples.")] = USUAL.limit,
    queries: Annotated[
        str,
        typer.Option(
            metavar="NUMBER|all|auto",
            help="Queries of each sample and head to measure. 'auto' measures all of up to "
            f"{ALL_QUERIES:,} and draws {DRAWN_QUERIES} of more.",
        ),
    ] = str(USUAL.queries),
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="A first look: bounds of the constants from the largest weight of each row alone.",
        ),
    ] = USUAL.quick,
    theta: Annotated[
        bool,
        typer.Option(
            "--theta", help="Measure the constants from linf to l1 of all rows, too, within 1e-6."
        ),
    ] = USUAL.theta,
    p: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Exponents p of the norms: exact constants for 1, 2 and inf, upper bounds for "
            "others.",
        ),
    ] = comma_separated(USUAL.norms),
    epsilons: Annotated[
        str,
        typer.Option(metavar="LIST", help="Step sizes of the empirical constants; empty for none."),
    ] = comma_separated(USUAL.epsilons),
    threshold: Annotated[
        float, typer.Option(help="Count the rows whose l2 constant is at least this.")
    ] = USUAL.threshold,
    logits: Annotated[
        bool, typer.Option("--logits", help="Measure the final logits of the model, too.")
    ] = False,
    scale: Annotated[
        float,
        typer.Option(help="Inverse temperature by which --logits multiplies the final logits."),
    ] = 1.0,
    consequence: Annotated[
        bool,
        typer.Option(
            "--consequence",
            help="Estimate by backward passes how far noise on each head moves the prediction, and "
            "rank heads by it.",
        ),
    ] = False,
    consequence_samples: Annotated[
        int, typer.Option(min=1, help="Number of samples that --consequence uses.")
    ] = CONSEQUENCE_SAMPLES,
    seed: Annotated[
        int, typer.Option(help="Seed of the random directions, sampled rows and drawn labels.")
    ] = USUAL.seed,
    revision: Revision = USUAL.revision,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N|auto",
            help="Part of the data for this job, counted from 1: i/n, as in 1/4 to 4/4; or auto in "
            "a job array of Slurm and others, or auto/n if its tasks are 1 to n. taut merge makes "
            "one record of all parts.",
        ),
    ] = None,
    output_dir: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the record and the report.")
    ] = FOLDER,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='TOML file with options, written as here: data = "lines.txt".',
            callback=read_config,
            is_eager=True,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record as one JSON object.")
    ] = False,
    show: Annotated[
        int, typer.Option(help="Number of heads to list, the most sensitive first.")
    ] = 10,
    parquet: Parquet = False,
    trust_remote_code: TrustRemoteCode = USUAL.trust_remote_code,
) -> None:
    """Measure every attention softmax of a model on data, and how sensitive each head is.

    Ctrl-C leaves a valid record of what was seen, and the same command
    continues it. Exits with 0 on success, 3 if not all of the data (or of
    the shard) was seen, and 2 if the input is wrong.
    """
    # Threads of PyTorch that wait by spinning would take the cores from the kernels in between.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with explained("audit", "hf", "report", "torch"):
        settings = AuditSettings(
            numbers(p, "p"), numbers(epsilons, "epsilons"), threshold, scale if logits else None,
            seed, consequence_samples if consequence else 0, batch_size=batch_size,
            max_length=max_length, limit=limit, queries=queries_of(queries), quick=quick,
            theta=theta, column=column, tokenizer=tokenizer, dtype=dtype, device=device,
            revision=revision, trust_remote_code=trust_remote_code,
        )  # fmt: skip
        if model is not None and not data:
            raise ValueError(
                "give --data: text, a text file, images, .wav files, tensors, a table, or a data "
                "set on the Hub (hf:name:configuration:split)"
            )
        form = RecordForm(show, as_json=json, parquet=parquet)
        if model is None:
            complete = _embedded(data or [], settings, output_dir, shard, form)
        else:
            complete = _audit(model, data or [], settings, output_dir, shard, form) is not None
    raise typer.Exit(0 if complete else 3)


def _embedded(
    data: list[str], settings: AuditSettings, folder: Path, shard: str | None, form: RecordForm
) -> bool:
    """Audit the models that come with taut, and compare them; return whether all was seen."""
    from taut.cli.comparison_table import show_comparison
    from taut.models import embedded_data, embedded_models

    if settings.dtype == "auto":  # they are kept in half precision to be small
        settings = replace(settings, dtype="float32")
    if not form.as_json and is_first_process():
        say(EMBEDDED)
    files = []
    for label, place in embedded_models().items():
        samples: Any = data or embedded_data(settings.limit)
        file = _audit(str(place), samples, settings, folder, shard, form, name=label)
        if file is None:
            return False
        files.append(file)
    if not form.as_json and not shard and is_first_process():
        say("")
        show_comparison(files, form.show, as_json=False)
    return True


def _audit(
    model: str,
    data: Any,
    settings: AuditSettings,
    folder: Path,
    shard: str | None,
    form: RecordForm,
    *,
    name: str = "",
) -> Path | None:
    """Audit one model and show it; return the file of the record if all of its data was seen."""
    from taut.audit import run

    form.check()
    record = run(
        model, data, name=name, folder=folder, shard=shard, progress=True, settings=settings,
        command=command_line(),
    )  # fmt: skip
    if is_first_process():  # the others have nothing to add
        form.give(record)
    done = record.complete if record.shard is None else record.shard.complete
    return record.file if done else None
