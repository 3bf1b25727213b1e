"""What `taut audit` does: load, watch the model on data, keep a record, and show it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from taut._text import say
from taut.audit._data import Samples, read_samples
from taut.audit._embedded import embedded_data, embedded_models
from taut.audit._grid import ROWS, SAMPLES
from taut.audit._record import Record
from taut.audit._report import write_report
from taut.audit._resume import audited
from taut.audit._show import show
from taut.audit._show_many import compared


class Options(NamedTuple):
    """The options of the command."""

    data: list[str]
    column: str | None
    tokenizer: str | None
    dtype: str
    device: str
    batch_size: int
    max_length: int
    limit: int
    norms: list[float]
    epsilons: list[float]
    threshold: float
    logits: float | None
    seed: int
    revision: str | None
    output_dir: Path
    as_json: bool
    show: int
    trust_remote_code: bool
    sampled: int = SAMPLES
    rows: int = ROWS


def run(name: str | None, options: Options) -> bool:
    """Audit a model by name, or those that ship with taut; whether all of the data was seen."""
    for what in ("batch_size", "max_length", "limit"):
        if getattr(options, what) < 1:
            raise ValueError(f"--{what.replace('_', '-')} must be at least 1")
    if name is not None:
        samples = read_samples(options.data, options.limit, options.column)
        return _audit(name, name, samples, options) is not None
    own = read_samples(options.data, options.limit, options.column) if options.data else None
    if options.dtype == "auto":  # they are kept in half precision to be small
        options = options._replace(dtype="float32")
    files = []
    for label, folder in embedded_models().items():
        file = _audit(str(folder), label, own or embedded_data(options.limit), options)
        if file is None:
            return False
        files.append(file)
    if len(files) > 1 and not options.as_json and _first_process():
        say("")
        compared(files, options.show, as_json=False)
    return True


def _audit(place: str, label: str, samples: Samples, options: Options) -> Path | None:
    """Audit one model and show it; the file of the record if all of the data was seen."""
    record, file = audited(place, label, samples, options)
    if record is None:
        return file  # the first process shows the result
    if _first_process():
        _say(record, file, options)
    return file if record.complete else None


def _say(record: Record, file: Path, options: Options) -> None:
    if not record.samples:
        return  # stopped before the first batch: nothing was seen of any attention
    if not record.layers and not record.missed and record.logits is None:
        raise ValueError("no attention was seen in this model; --logits measures what it gives out")
    if options.as_json:
        print(record.to_json())
        return
    show(record, options.show)
    say(f"record: {file}")
    page = file.with_suffix(".html")
    write_report(record, page)
    say(f"report: {page}")


def _first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"
