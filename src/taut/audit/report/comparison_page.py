"""The page of a comparison: what differs between records, and what can be said about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut._base.files import write_whole
from taut._base.terminal_text import printable
from taut.audit.comparison import Comparison, comparison
from taut.audit.data_sentences import data_sentences
from taut.audit.report.figures import Figure
from taut.audit.report.layer_names import layer_pattern, short_layer_names
from taut.audit.report.standing import Strip, draw_strips, strip, strips_table
from taut.audit.report.svg_cells import CellScale, draw_cells, fitted_scale
from taut.audit.report.svg_lines import draw_lines
from taut.audit.report.tables import ReportTable, layer_name
from taut.audit.report.templates import rendered
from taut.audit.training_steps import TrainingRecords, shared_steps

if TYPE_CHECKING:
    from taut.audit.record import Record


def write_comparison(
    records: Sequence[Record],
    file: Path | str,
    *,
    names: Sequence[str] = (),
    trainings: Sequence[TrainingRecords] = (),
) -> None:
    """Write a page that sets records side by side: whole or not at all.

    Parameters
    ----------
    records
        Two records or more.
    file
        HTML file to write; its folder must exist.
    names
        What to call the records; by default their models.
    trainings
        Records over steps, which the last ``records`` belong to; they are drawn as curves.
    """
    write_whole(comparison_html(records, names, trainings), Path(file))


def comparison_html(
    records: Sequence[Record],
    names: Sequence[str] = (),
    trainings: Sequence[TrainingRecords] = (),
) -> str:
    """The page as text."""
    called = list(names) or [str(record.model.get("name") or "model") for record in records]
    found = comparison(*records)
    strips = [
        strip(
            name,
            _about(record),
            [row["mean"] for row in record.heads if row["rows"]],
            own=record is records[-1],
        )
        for name, record in zip(called, records, strict=True)
        if any(row["rows"] for row in record.heads)
    ]
    full = list(dict.fromkeys(head.layer for head in found.heads))
    return rendered(
        "compare.html.j2",
        names=called,
        found=found,
        records=_records_table(records, called),
        distributions=_distributions(strips) if strips else None,
        change=_change(records[0], found) if found.heads else None,
        heads=_heads_table(found, called) if found.heads else None,
        pattern=layer_pattern([layer_name(name) for name in full]),
        steps=_steps(trainings) if trainings else None,
    )


def _about(record: Record) -> str:
    words = data_sentences(record.data)
    return words[0].removeprefix("Data: ").rstrip(".") if words else f"{record.samples} samples"


def _records_table(records: Sequence[Record], names: Sequence[str]) -> ReportTable:
    rows = []
    for name, record in zip(names, records, strict=True):
        heads = [row for row in record.heads if row["rows"]]
        state = "complete" if record.complete else "partial"
        kind = str(record.model.get("class") or "")
        made = str(record.made.get("date") or "")[:10]
        rows.append(
            [name, kind, f"{len(heads)}", f"{record.samples:,}", state, _about(record), made]
        )
    columns = ["record", "class", "heads", "samples", "state", "data", "made"]
    return ReportTable("The records", columns, rows)


def _distributions(strips: Sequence[Strip]) -> Figure:
    title = "Mean constants of heads"
    meaning = (
        "Each line holds the middle nine tenths of a record's heads, the box the middle half, and "
        "the stroke in it is the median."
    )
    return Figure(title, meaning, draw_strips(strips, title), strips_table(title, strips))


def _change(first: Record, found: Comparison) -> Figure:
    """Layers x heads by how far their means moved."""
    layers = {layer.name: place for place, layer in enumerate(first.layers)}
    values = np.full((len(layers), max(layer.state.heads for layer in first.layers)), np.nan)
    for head in found.heads:
        values[layers[head.layer], head.head] = head.change
    most = fitted_scale(np.abs(values)).high or 1.0
    scale = CellScale(-most, most, ("fell", "rose"), colours="d")
    names = [layer_name(name) for name in layers]
    title = "Change of the mean constant in l2"

    def text(value: float) -> str:
        return f"{value:+.4f}"

    picture = draw_cells(
        values, short_layer_names(names), title=f"Heat map, {title}: {found.verdict}", scale=scale,
        text=text, full=names,
    )  # fmt: skip
    rows = [
        [name, *("–" if np.isnan(value) else text(value) for value in line)]
        for name, line in zip(names, values, strict=True)
    ]
    table = ReportTable(title, ["layer", *(f"head {h}" for h in range(values.shape[1]))], rows)
    meaning = "From the first record to the last. Blue cells fell, orange ones rose."
    return Figure(title, meaning, picture, table)


def _heads_table(found: Comparison, names: Sequence[str]) -> ReportTable:
    full = list(dict.fromkeys(head.layer for head in found.heads))
    short = dict(zip(full, short_layer_names([layer_name(name) for name in full]), strict=True))
    ranked = sorted(found.heads, key=lambda head: -abs(head.change or 0.0))
    rows = [
        [f"{short[head.layer]} head {head.head}", *(f"{mean:.4f}" for mean in _known(head.means)),
         f"{head.change:+.4f}"]
        for head in ranked
    ]  # fmt: skip
    columns = ["head", *names, "change"]
    return ReportTable("Mean constants in l2, the largest change first", columns, rows)


def _known(means: Sequence[float | None]) -> list[float]:
    return [mean for mean in means if mean is not None]


def _steps(trainings: Sequence[TrainingRecords]) -> Figure:
    """The mean constants of trainings over their steps."""
    places = shared_steps(trainings)
    curves: dict[str, list[float]] = {}
    rows: list[list[Any]] = []
    for training in trainings:
        means = {step.step: step.mean for step in training.steps}
        name = printable(training.name)
        curves[name] = [means.get(step, float("nan")) for step in places]
        rows.append([name, *(f"{means[s]:.4f}" if s in means else "–" for s in places)])
    title = "Mean constant of all heads over training"
    says = f"{title}: " + "; ".join(
        f"{printable(each.name)} from {each.steps[0].mean:.4f} to {each.steps[-1].mean:.4f}"
        for each in trainings
    )
    words = [f"{step}" for step in places]
    picture = draw_lines(words, curves, axis="step", title=says)
    table = ReportTable(title, ["training", *(f"step {word}" for word in words)], rows)
    meaning = "Steps are set at equal distances. The tables below compare the last records."
    return Figure(title, meaning, picture, table)
