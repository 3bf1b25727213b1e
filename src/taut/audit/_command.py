"""What `taut audit` does: load, watch the model on data, keep a record, and show it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from taut._text import say
from taut.audit._batches import Batch, batches, fitted
from taut.audit._data import Samples, read_samples
from taut.audit._embedded import embedded_data, embedded_models
from taut.audit._grid import ROWS, SAMPLES
from taut.audit._model import describe
from taut.audit._processes import Processes, processes
from taut.audit._record import Record
from taut.audit._report import write_report
from taut.audit._run import Auditor
from taut.audit._show import show
from taut.audit._show_many import compared
from taut.torch._load import load

SAVE_EVERY = 5.0  # seconds


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
    _say(record, file, options)
    return file if record.complete else None


def audited(
    place: str, label: str, samples: Samples, options: Options
) -> tuple[Record | None, Path]:
    """Audit one model, or go on with it; its record (in the first process), and where that is."""
    with processes() as here:
        model = load(
            place,
            dtype=options.dtype,
            revision=options.revision,
            trust_remote_code=options.trust_remote_code,
            device=_device(options.device),
        )
        record = _fresh(describe(model, label), samples, options)
        record.data |= fitted(
            samples, model, place, options.max_length, revision=options.revision,
            tokens_of=options.tokenizer,
        )  # fmt: skip
        file = _file(record, options)
        own = file if here.world == 1 else file.with_suffix(f".{here.rank}-of-{here.world}.json")
        if file.exists() and (known := Record.load(file)).complete:
            return known if here.rank == 0 else None, file
        if own.exists():
            record = Record.load(own)  # the same command has been here
        auditor = Auditor(
            model, record, norms=options.norms, epsilons=options.epsilons, seed=options.seed,
            threshold=options.threshold, logits=options.logits, sampled=options.sampled,
            rows=options.rows,
        )  # fmt: skip
        with _kept(record, own, len(samples.items)):
            _work(auditor, samples, place, options, own, here)
        whole = here.together(record)
    if whole is not None and own != file:
        whole.save(file)
        if whole.complete:
            for part in file.parent.glob(f"{file.stem}.*-of-{here.world}.json"):
                part.unlink()
    return whole, file


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


def _device(asked: str) -> str:
    """Each process on its own accelerator."""
    if asked == "cuda" and "LOCAL_RANK" in os.environ:
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return asked


def _file(fresh: Record, options: Options) -> Path:
    """Where the record goes: one for each model, data and settings."""
    name = fresh.model["name"]
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "model"
    data = {key: value for key, value in fresh.data.items() if key != "source"}  # it may be moved
    told = json.dumps([fresh.model, data, fresh.settings], sort_keys=True)
    mark = hashlib.blake2b(told.encode(), digest_size=3).hexdigest()
    try:
        options.output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {options.output_dir}: {error.strerror}") from None
    return options.output_dir / f"{safe[-100:]}-{mark}.json"


def _fresh(model: dict[str, Any], samples: Samples, options: Options) -> Record:
    """A record in which nothing was seen yet."""
    settings = {
        "dtype": options.dtype,
        "max_length": options.max_length,
        "limit": options.limit,
        "batch_size": options.batch_size,
        "tokenizer": options.tokenizer,
        "norms": [str(p) for p in options.norms],
        "epsilons": options.epsilons,
        "threshold": options.threshold,
        "logits": options.logits,
        "seed": options.seed,
        "sampled": [options.sampled, options.rows],
    }
    return Record(model, samples.description, settings)


@contextmanager
def _kept(record: Record, file: Path, total: int) -> Iterator[None]:
    """What was seen is written down, however the work ends; Ctrl-C is no error."""
    try:
        yield
    except KeyboardInterrupt:
        say("", file=sys.stderr)
        say(
            f"taut audit: stopped after {record.samples} of {total} samples; the same command "
            "goes on from there",
            file=sys.stderr,
        )
    finally:
        if record.samples:
            record.save(file)


def _work(
    auditor: Auditor, samples: Samples, place: str, options: Options, file: Path, here: Processes
) -> None:
    """The batches of this process, saving now and then."""
    record, size = auditor.record, options.batch_size
    firsts = range(here.rank * size, len(samples.items), here.world * size)
    left = firsts[-(-record.samples // size) :]
    saved = time.monotonic()
    made = batches(
        samples, auditor.model, place, left, size=size, max_length=options.max_length,
        revision=options.revision, tokens_of=options.tokenizer,
    )  # fmt: skip
    total = sum(min(size, len(samples.items) - first) for first in firsts)
    for batch in _shown(made, total, record, quiet=here.rank != 0 or not sys.stderr.isatty()):
        try:
            auditor.add(batch.inputs, tokens=batch.tokens, first=batch.first)
        except RuntimeError as error:  # of accelerators OutOfMemoryError, of the host this
            if "memory" not in str(error):
                raise
            smaller = f"--batch-size {size // 2}" if size > 1 else "a smaller --max-length"
            raise ValueError(f"out of memory: try {smaller}") from None
        if time.monotonic() - saved > SAVE_EVERY:
            record.save(file)
            saved = time.monotonic()
    record.complete = True


def _shown(made: Iterator[Batch], total: int, record: Record, *, quiet: bool) -> Iterator[Batch]:
    """The batches, with a bar of progress, rate and time left on the terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: Sequence[Any] = (
        BarColumn(), MofNCompleteColumn(), TextColumn("samples"),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    began, before = time.monotonic(), record.samples
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=total, completed=before, rate="")
        for batch in made:
            yield batch
            rate = (record.samples - before) / max(time.monotonic() - began, 1e-9)
            bar.update(task, completed=record.samples, rate=f"{rate:.1f}/s,")
