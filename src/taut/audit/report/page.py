"""The report of an audit: one HTML file without scripts that works offline."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from taut._base.files import write_whole
from taut._base.optional import needing
from taut._base.terminal_text import printable
from taut.audit.consequence.columns import RANKED_BY
from taut.audit.consequence.sentence import consequence_sentence
from taut.audit.coverage import coverage_sentences
from taut.audit.data_sentences import data_sentences
from taut.audit.findings import LOOKED_FOR, findings
from taut.audit.report.curves import curves
from taut.audit.report.figures import distributions, heat_maps
from taut.audit.report.svg import standalone, style
from taut.audit.report.tables import (
    ReportTable,
    columns_table,
    facts_table,
    grid_table,
    head_name,
    logits_table,
    ranked_table,
    worst_table,
)

if TYPE_CHECKING:
    from taut.audit.record import Record


def write_report(record: Record, file: Path) -> None:
    """Write the report of a record: whole or not at all.

    Parameters
    ----------
    record
        Record of an audit, complete or not.
    file
        HTML file to write; its folder must exist.
    """
    write_whole(html(record), file)


def save_picture(record: Record, file: Path) -> None:
    """Write the heat map of the mean constants in l2 as an SVG picture, for a README or a paper."""
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
    words = ("head", *shown)
    head = "".join(f"<th>{escape(word)}</th>" for word in words)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
    title = escape(printable(str(record).splitlines()[0]))
    return f"<p>{title}</p>{picture}<table><tr>{head}</tr>{lines}</table>"


def html(record: Record) -> str:
    """The report of a record as text."""
    with needing("reports need jinja2", "report"):
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    return templates.get_template("page.html.j2").render(
        record=record,
        name=record.model.get("name") or "model",
        style=style(),
        data=[*data_sentences(record.data), *coverage_sentences(record)],
        consequence=consequence_sentence(record),
        summary=_summary(record),
        findings=findings(record),
        places={head_name(row): place for place, row in enumerate(record.ranked, start=1)},
        looked_for=LOOKED_FOR,
        heat_maps=heat_maps(record),
        distributions=distributions(record),
        columns=columns_table(record),
        ranked=ranked_table(record),
        worst=worst_table(record),
        curves=curves(record),
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


def _summary(record: Record) -> dict[str, str]:
    """The few numbers on top."""
    heads = [row for row in record.heads if row["rows"]]
    rows = sum(row["rows"] for row in heads)
    found = {
        "samples": f"{record.samples:,}",
        "layers": f"{len(record.layers):,}",
        "heads": f"{len(record.heads):,}",
        "rows of attention": f"{rows:,}",
    }
    if heads:
        mean = sum(row["mean"] * row["rows"] for row in heads) / rows
        columns = record.columns
        for name, value in (("mean", mean), ("largest", max(row["largest"] for row in heads))):
            column = columns[name]
            found[f"{name} constant in l2 ({column.kind})"] = column.text(value)
    return found
