"""What `taut audit` does: load, watch the model on data, keep a record, and show it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from taut.audit._compare import compare
from taut.audit._data import Samples, batches, read_samples
from taut.audit._findings import findings
from taut.audit._names import pattern, short_names
from taut.audit._processes import Processes, processes
from taut.audit._record import Record
from taut.audit._report import write_report
from taut.audit._run import Auditor, describe
from taut.torch._load import load

SAVE_EVERY = 5.0  # seconds


class Options(NamedTuple):
    """The options of the command."""

    data: list[str]
    dtype: str
    device: str
    batch_size: int
    max_length: int
    limit: int
    norms: list[float]
    epsilons: list[float]
    seed: int
    revision: str | None
    output_dir: Path
    as_json: bool
    show: int
    trust_remote_code: bool


def run(name: str, options: Options) -> bool:
    """Audit a model by name; whether all of the data was seen."""
    for what in ("batch_size", "max_length", "limit"):
        if getattr(options, what) < 1:
            raise ValueError(f"--{what.replace('_', '-')} must be at least 1")
    samples = read_samples(options.data, options.limit)
    with processes() as here:
        file = _file(name, options)
        own = file if here.world == 1 else file.with_suffix(f".{here.rank}-of-{here.world}.json")
        model = load(
            name,
            dtype=options.dtype,
            revision=options.revision,
            trust_remote_code=options.trust_remote_code,
        ).to(torch.device(options.device))
        record = _begin(own, describe(model, name), samples, options)
        auditor = Auditor(
            model, record, norms=options.norms, epsilons=options.epsilons, seed=options.seed
        )
        try:
            _work(auditor, samples, name, options, own, here)
        except KeyboardInterrupt:
            print(
                f"\ntaut audit: stopped after {record.samples} of {len(samples.items)} samples; "
                "the same command goes on from there",
                file=sys.stderr,
            )
        record.save(own)
        whole = here.together(record)
    if whole is None:
        return True  # the first process shows the result
    if own != file:
        whole.save(file)
    if not whole.layers and not whole.missed:
        raise ValueError("no attention was seen in this model")
    if options.as_json:
        print(json.dumps(whole.to_dict()))
    else:
        show(whole, options.show)
        print(f"record: {file}")
        page = file.with_suffix(".html")
        write_report(whole, page)
        print(f"report: {page}")
    return whole.complete


def _file(name: str, options: Options) -> Path:
    """Where the record goes: nothing is written anywhere else."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "model"
    try:
        options.output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the folder {options.output_dir}: {error.strerror}") from None
    return options.output_dir / f"{safe[-100:]}.json"


def _begin(file: Path, model: dict[str, Any], samples: Samples, options: Options) -> Record:
    """The record of an earlier run of the same, or a new one."""
    settings = {
        "dtype": options.dtype,
        "max_length": options.max_length,
        "limit": options.limit,
        "batch_size": options.batch_size,
        "norms": [str(p) for p in options.norms],
        "epsilons": options.epsilons,
        "seed": options.seed,
    }
    fresh = Record(model, samples.description, settings)
    if not file.exists():
        return fresh
    old = Record.load(file)
    same = (old.model, old.data, old.settings) == (fresh.model, fresh.data, fresh.settings)
    if not same:
        raise ValueError(
            f"{file} is the record of another model, other data or other settings; choose another "
            "--output-dir or remove it"
        )
    return old


def _work(
    auditor: Auditor,
    samples: Samples,
    name: str,
    options: Options,
    file: Path,
    here: Processes,
) -> None:
    """The batches of this process, saving now and then."""
    record = auditor.record
    done = record.samples
    began = saved = time.monotonic()
    size = options.batch_size
    firsts = range(here.rank * size, len(samples.items), here.world * size)
    total = sum(min(size, len(samples.items) - first) for first in firsts)
    for batch in batches(
        samples, auditor.model, name, firsts[-(-done // size) :],
        size=size, max_length=options.max_length,
    ):  # fmt: skip
        try:
            auditor.add(batch.inputs, tokens=batch.tokens, first=batch.first)
        except torch.OutOfMemoryError:
            raise ValueError(f"out of memory: try --batch-size {max(1, size // 2)}") from None
        now = time.monotonic()
        if now - saved > SAVE_EVERY:
            record.save(file)
            saved = now
        if sys.stderr.isatty() and here.rank == 0:
            rate = (record.samples - done) / max(now - began, 1e-9)
            left = (total - record.samples) / rate
            line = f"\r{record.samples}/{total} samples, {rate:.1f}/s, {left:.0f} s left   "
            print(line, end="", file=sys.stderr)
    record.complete = True
    if sys.stderr.isatty() and here.rank == 0:
        print(file=sys.stderr)


def show(record: Record, lines: int) -> None:
    """The record on the terminal: layers, the most sensitive heads, findings."""
    from rich.console import Console

    console = Console()
    state = "" if record.complete else " (partial)"
    print(f"{record.model['name']}: {record.samples} samples{state}.")
    print("Softmax is 1/2-Lipschitz in l2: no constant below can be larger.")
    full = [layer.name for layer in record.layers]
    names = dict(zip(full, short_names(full), strict=True))
    if pattern(full):
        print(f"Layers are {pattern(full)}")
    console.print(_layers(record, names))
    console.print(_heads(record, names, lines))
    if any(layer.grid is not None and layer.grid.rows for layer in record.layers):
        console.print(_grid(record))
    for finding in findings(record):
        print(f"- {finding.text} {finding.advice}".rstrip())


def _layers(record: Record, names: dict[str, str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table("layer", title="Exact local constants in l2, by layer")
    for head in ("heads", "mean", "largest", "near 1/2", "entropy", "top weight", "score range"):
        table.add_column(head, justify="right")
    for layer in record.layers:
        rows = [r for r in record.heads if r["layer"] == layer.name and r["rows"]]
        first = (Text(names[layer.name]), str(layer.state.heads))
        if not rows:
            table.add_row(*first, *["-"] * 6)
            continue
        mean = {k: sum(r[k] for r in rows) / len(rows) for k in ("mean", "near", "entropy", "top")}
        table.add_row(
            *first, f"{mean['mean']:.3f}", f"{max(r['largest'] for r in rows):.3f}",
            f"{mean['near']:.1%}", f"{mean['entropy']:.2f}", f"{mean['top']:.2f}",
            f"{max(r['range'] for r in rows):.1f}",
        )  # fmt: skip
    return table


def _grid(record: Record) -> Any:
    """S1's table: the largest of all layers."""
    from rich.table import Table

    grids = [layer.grid for layer in record.layers if layer.grid is not None]
    rows = sum(grid.rows for grid in grids)
    title = f"Empirical constants of {rows} rows: random / worst directions"
    table = Table("step size", title=title)
    first = grids[0]
    for p in first.norms:
        table.add_column(f"l{p:g}", justify="right")
    for i, epsilon in enumerate(first.epsilons):
        cells = [
            f"{max(g.random[i, j] for g in grids):.3f} / {max(g.worst[i, j] for g in grids):.3f}"
            for j in range(len(first.norms))
        ]
        table.add_row(f"{epsilon:g}", *cells)
    upper = [f"at most {max(g.upper[j] for g in grids):.3f}" for j in range(len(first.norms))]
    table.add_row("local constant", *upper)
    return table


def _heads(record: Record, names: dict[str, str], lines: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table("layer", "head", "mean", "median", "largest", "where", title="The most sensitive")
    for row in [row for row in record.ranked if row["rows"]][:lines]:
        where = f"sample {row['sample']}, query {row['query']} {row['token']}"
        cells = [names[row["layer"]], str(row["head"]), f"{row['mean']:.3f}"]
        cells += [f"{row['median']:.3f}", f"{row['largest']:.4f}", where]
        table.add_row(*map(Text, cells))
    return table


def compared(files: list[Path], lines: int, *, as_json: bool) -> None:
    """Records side by side: all heads as JSON, or those that changed most as a table."""
    records = [Record.load(file) for file in files]
    heads = compare(*records)
    if as_json:
        found = [{**head._asdict(), "change": head.change} for head in heads]
        print(json.dumps({"records": [str(file) for file in files], "heads": found}))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for file, record in zip(files, records, strict=True):
        rows = [row for row in record.heads if row["rows"]]
        mean = sum(row["mean"] for row in rows) / max(len(rows), 1)
        print(f"{file}: {record.model['name']}, mean constant {mean:.4f} over {len(rows)} heads")
    table = Table("layer", "head", title="Mean constants in l2, largest change first")
    for file in files:
        table.add_column(Text(file.stem), justify="right")
    table.add_column("change", justify="right")
    for head in sorted(heads, key=lambda head: -abs(head.change))[:lines]:
        means = ["-" if mean is None else f"{mean:.4f}" for mean in head.means]
        table.add_row(Text(head.layer), str(head.head), *means, f"{head.change:+.4f}")
    Console().print(table)


def listed(folder: Path) -> None:
    """The records in a folder, a line each; what is none is passed over."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    found = 0
    for file in sorted(folder.glob("*.json")):
        try:
            record = Record.load(file)
        except ValueError:
            continue
        found += 1
        state = "complete" if record.complete else "partial"
        print(f"{file}: {record.model['name']}, {record.samples} samples, {state}")
    if not found:
        print(f"no audits in {folder}")
