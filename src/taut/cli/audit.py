"""`taut audit`: measure every attention softmax of a model on data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from taut._base.settings import CONSEQUENCE_SAMPLES, AuditSettings
from taut._base.terminal_text import say
from taut.cli.config_file import read_config
from taut.cli.errors import explained, typer
from taut.cli.options import (
    Dtype,
    MaxLength,
    Revision,
    TrustRemoteCode,
    comma_separated,
    numbers,
)

app = typer.Typer()
USUAL = AuditSettings()  # the defaults stand there
FOLDER = Path("taut-audit")


@app.command()
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
            help="Text, a text file (one sample a line), images or a folder of them, .wav files, "
            "tensors (.npy, .pt), a table (.jsonl, .csv, .parquet), or a data set on the "
            "Hub (hf:name:configuration:split). Repeat the option for several of them."
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Column of a table that holds the samples.")
    ] = USUAL.column,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or Hub id of the tokenizer, if not the model's.")
    ] = USUAL.tokenizer,
    dtype: Dtype = USUAL.dtype,
    device: Annotated[
        str,
        typer.Option(help="Device: cpu, cuda, cuda:1, ..., or auto to spread over all devices."),
    ] = USUAL.device,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = USUAL.batch_size,
    max_length: MaxLength = USUAL.max_length,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of samples.")] = USUAL.limit,
    p: Annotated[
        str,
        typer.Option(
            help="Exponents p of the norms: exact constants for 1, 2 and inf, upper bounds for "
            "others."
        ),
    ] = comma_separated(USUAL.norms),
    epsilons: Annotated[
        str, typer.Option(help="Step sizes of the empirical constants; empty for none.")
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
    output_dir: Annotated[
        Path, typer.Option(help="Folder for the record and the report.")
    ] = FOLDER,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with options.", callback=read_config, is_eager=True),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the record as one JSON object.")
    ] = False,
    show: Annotated[
        int, typer.Option(help="Number of heads to list, the most sensitive first.")
    ] = 10,
    trust_remote_code: TrustRemoteCode = USUAL.trust_remote_code,
) -> None:
    """Measure every attention softmax of a model on data, and how sensitive each head is.

    Ctrl-C leaves a valid record of what was seen, and the same command
    continues it. Exits with 0 on success, 3 if not all of the data was
    seen, and 2 if the input is wrong.
    """
    # Threads of PyTorch that wait by spinning would take the cores from the kernels in between.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with explained("audit", "hf", "report", "torch"):
        settings = AuditSettings(
            numbers(p, "p"), numbers(epsilons, "epsilons"), threshold, scale if logits else None,
            seed, consequence_samples if consequence else 0, batch_size=batch_size,
            max_length=max_length, limit=limit, column=column, tokenizer=tokenizer, dtype=dtype,
            device=device, revision=revision,
            trust_remote_code=trust_remote_code,
        )  # fmt: skip
        if model is not None and not data:
            raise ValueError(
                "give --data: text, a text file, images, .wav files, tensors, a table, or a data "
                "set on the Hub (hf:name:configuration:split)"
            )
        if model is None:
            complete = _embedded(data or [], settings, output_dir, show, as_json=json)
        else:
            given = (model, data or [], settings, output_dir)
            complete = _audit(*given, show=show, as_json=json) is not None
    raise typer.Exit(0 if complete else 3)


def _embedded(
    data: list[str], settings: AuditSettings, folder: Path, show: int, *, as_json: bool
) -> bool:
    """Audit the models that come with taut, and compare them; return whether all was seen."""
    from taut.cli.comparison_table import show_comparison
    from taut.models import embedded_data, embedded_models

    if settings.dtype == "auto":  # they are kept in half precision to be small
        settings = replace(settings, dtype="float32")
    files = []
    for label, place in embedded_models().items():
        samples: Any = data or embedded_data(settings.limit)
        file = _audit(str(place), samples, settings, folder, name=label, show=show, as_json=as_json)
        if file is None:
            return False
        files.append(file)
    if not as_json and _is_first_process():
        say("")
        show_comparison(files, show, as_json=False)
    return True


def _audit(
    model: str,
    data: Any,
    settings: AuditSettings,
    folder: Path,
    *,
    name: str = "",
    show: int,
    as_json: bool,
) -> Path | None:
    """Audit one model and show it; return the file of the record if all of the data was seen."""
    from taut.audit import run, write_report
    from taut.cli.record_table import show_record

    record = run(model, data, name=name, folder=folder, progress=True, settings=settings)
    if record.samples and _is_first_process():  # the others have nothing to add
        assert record.file is not None
        if as_json:
            print(record.to_json())
        else:
            show_record(record, show)
            say(f"record: {record.file}")
            page = record.file.with_suffix(".html")
            write_report(record, page)
            say(f"report: {page}")
    return record.file if record.complete else None


def _is_first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"
