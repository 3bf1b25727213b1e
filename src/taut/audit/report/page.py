"""The report of an audit: one HTML file that works offline, with and without its own script."""

from __future__ import annotations

import base64
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from taut._base.files import write_whole
from taut._base.html_table import html_lines, html_table
from taut._base.terminal_text import shortened
from taut.audit.consequence.columns import RANKED_BY
from taut.audit.consequence.sentence import consequence_sentence
from taut.audit.coverage import coverage_sentences, shown_rows
from taut.audit.data_sentences import data_sentences
from taut.audit.findings import Finding, findings
from taut.audit.report.curves import LARGER_STEPS, curves
from taut.audit.report.figures import MapLinks, distributions, groups, heat_maps
from taut.audit.report.head_panel import HeadPanel, anchor, head_panels
from taut.audit.report.layer_names import layer_pattern, short_layer_names
from taut.audit.report.standing import standing_figure
from taut.audit.report.svg import standalone
from taut.audit.report.tables import (
    ReportTable,
    columns_table,
    facts_table,
    grid_table,
    layer_name,
    logits_table,
    ranked_table,
    worst_table,
)
from taut.audit.report.templates import rendered
from taut.audit.verdict import GRAVE, verdict

if TYPE_CHECKING:
    from taut.audit.record import Record


def write_report(record: Record, file: Path | str) -> None:
    """Write the report of a record: whole or not at all.

    Parameters
    ----------
    record
        Record of an audit, complete or not.
    file
        HTML file to write; its folder must exist.
    """
    write_whole(html(record), Path(file))


def save_picture(record: Record, file: Path | str) -> None:
    """Write the heat map of the mean constants in l2 as an SVG picture, for a README or a paper."""
    file = Path(file)
    if file.suffix.lower() != ".svg":
        raise ValueError(f"the picture {str(file)!r} must end in .svg")
    if not record.layers:
        raise ValueError("there is nothing to draw: no attention was seen")
    write_whole(standalone(heat_maps(record)[0].picture), file)


def fragment(record: Record) -> str:
    """The first heat map and a table of the most sensitive heads, for a notebook."""
    picture = ""
    if record.layers:  # as an image, so that its rules do not reach the rest of the page
        drawn = base64.b64encode(standalone(heat_maps(record)[0].picture).encode()).decode()
        picture = f'<img alt="Mean constants in l2" src="data:image/svg+xml;base64,{drawn}">'
    ranked = ranked_table(record)
    shown = [record.columns[name].heading for name in ("mean", "largest")]
    shown += [record.columns[RANKED_BY].heading] if record.has_consequence else []
    places = [0, *(ranked.columns.index(heading) for heading in shown)]
    rows = [[row[place] for place in places] for row in ranked.rows[:10]]
    table = html_table(["head", *shown], rows, numbers=range(1, len(shown) + 1))
    title = f"{str(record).splitlines()[0]}. {verdict(record)}"
    return f"{html_lines(title)}{picture}{table}"


def _called(record: Record) -> str:
    """The model's name; of a folder its last part, as the whole path stands among the facts."""
    name = str(record.model.get("name") or "model")
    return PurePath(name).name if name.startswith(("/", "./", "../", "~")) else name


def html(record: Record) -> str:
    """The report of a record as text."""
    names = [layer_name(layer.name) for layer in record.layers]
    short = dict(zip([x.name for x in record.layers], short_layer_names(names), strict=True))
    panels = head_panels(record, short)
    found = findings(record)
    return rendered(
        "page.html.j2",
        record=record,
        name=_called(record),
        verdict=verdict(record),
        data=[*data_sentences(record.data), *coverage_sentences(record)],
        consequence=consequence_sentence(record),
        summary=_summary(record),
        findings=found,
        grave=GRAVE,
        places=_places(record, panels),
        pattern=layer_pattern(names),
        standing=standing_figure(record),
        panels=panels,
        fewer=len(panels) < sum(row["rows"] > 0 for row in record.heads),
        pictures=record.pictures,
        **_figures(record, panels, found),
        columns=columns_table(record),
        ranked=ranked_table(record, short),
        worst=worst_table(record),
        steps=LARGER_STEPS,
        grid=grid_table(record),
        logits=logits_table(record),
        missed=ReportTable("Attention that was not seen", ["module", "operation"], record.missed),
        facts=[
            facts_table("Model", record.model),
            facts_table("Data", {**record.data, "samples seen": record.samples}),
            facts_table("Settings", record.settings),
            facts_table("Versions", record.versions),
        ],
    )


def _figures(record: Record, panels: list[HeadPanel], found: list[Finding]) -> dict[str, Any]:
    """The figures; heads that grave findings name have a dot on the first one."""
    known = {panel.anchor for panel in panels}
    numbers = {layer.name: place for place, layer in enumerate(record.layers)}
    named = {name for each in found if each.kind in GRAVE for name in each.heads}
    marked = {
        (numbers[row["layer"]], row["head"])
        for row in record.heads
        if f"{row['layer']} head {row['head']}" in named
    }

    def link(layer: int, head: int) -> str:
        there = anchor(layer, head)
        return there if there in known else ""

    return {
        "heat_maps": heat_maps(record, MapLinks(link, marked)),
        "marked": marked,
        "distributions": distributions(record),
        "groups": groups(record),
        "curves": curves(record),
    }


def _places(record: Record, panels: list[HeadPanel]) -> dict[str, HeadPanel]:
    """The panel of each head, by the name that findings call it."""
    names = [f"{row['layer']} head {row['head']}" for row in record.ranked if row["rows"]]
    return dict(zip(names, panels, strict=False))


def _summary(record: Record) -> dict[str, str]:
    """The few facts on top: when, what, on which data, how much."""
    heads = [row for row in record.heads if row["rows"]]
    rows = sum(row["rows"] for row in heads)
    found = {}
    if record.made.get("date"):
        found["date"] = f"{str(record.made['date'])[:16].replace('T', ' ')} UTC"
    parameters = record.model.get("parameters")
    size = f", {parameters:,} parameters" if type(parameters) is int else ""
    kind = record.model.get("class")
    found["model"] = f"{record.model.get('name') or 'model'}{f' ({kind})' if kind else ''}{size}"
    if record.data.get("kind"):
        words = data_sentences(record.data)[0].removeprefix("Data: ").rstrip(".")
        found["data"] = shortened(words, 160)
    if record.made.get("command"):
        found["command"] = str(record.made["command"])
    found["measured"] = (
        f"{rows:,} rows of attention in {len(heads):,} heads of {len(record.layers):,} layers, "
        f"from {record.samples:,} samples"
    )
    if heads:
        mean = sum(row["mean"] * row["rows"] for row in heads) / rows
        columns = record.columns
        told = [
            f"{name} {columns[name].text(value)} ({columns[name].kind})"
            for name, value in (("mean", mean), ("largest", max(row["largest"] for row in heads)))
        ]
        found["constants in l2"] = f"{', '.join(told)}, of {shown_rows(record)}"
    return found
