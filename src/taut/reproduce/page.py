"""Write a result down: a JSON record, a Markdown page, and its figure as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taut._base.files import write_whole
from taut._base.json_files import plain
from taut._base.optional import needing
from taut.reproduce.result import Curve, Plot, Result, ResultTable

WIDTH, HEIGHT, COLUMNS = 300, 200, 2
LONGEST_TITLE = 48  # letters
AGREES = {True: "yes", False: "**no**", None: "–"}


def write(result: Result, folder: Path, command: str) -> list[Path]:
    """The files of a result, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{result.name}.json", folder / f"{result.name}.md"]
    write_whole(result.to_json(command), files[0])
    write_whole(page(result, command), files[1])
    if result.plots:
        picture = chart(result.plots)
        for ending in (".svg", ".png"):
            files.append(folder / f"{result.name}{ending}")
            drawn: Any = io.BytesIO() if ending == ".png" else io.StringIO()
            picture.save(drawn, format=ending[1:], scale_factor=2 if ending == ".png" else 1)
            write_whole(drawn.getvalue(), files[-1])
    return files


def page(result: Result, command: str) -> str:
    """The page of a result in Markdown."""
    lines = [f"# {result.title}", "", *result.remarks, ""]
    if result.claims:
        rows = [[c.statement, c.paper, c.found, AGREES[c.agrees]] for c in result.claims]
        header = ["claim", "paper", "found here", "agrees"]
        lines += [markdown(ResultTable("", header, rows)), ""]
    if result.plots:
        titles = "; ".join(plot.title for plot in result.plots)
        lines += [f"![{titles}]({result.name}.svg)", ""]
    for table in result.tables:
        lines += [f"## {table.title}", "", markdown(table), ""]
    settings = plain(result.settings)  # as in the record, where an infinite exponent is a word
    told = ", ".join(f"{name} = {value}" for name, value in settings.items()).replace(
        "'inf'", "inf"
    )
    lines += ["## How it was made", "", "```", command, "```", "", f"Settings: {told}.", ""]
    return literal_underscores("\n".join(lines))


def literal_underscores(text: str) -> str:
    """Markdown in which no underscore of a formula, as in ‖x‖_p ≤ ‖y‖_p, begins or ends italics.

    Those between letters never do, and code is left alone.
    """
    pattern = r"(```.*?```|`[^`\n]*`|\\_)|(?<![^\W_])_|_(?![^\W_])"
    return re.sub(pattern, lambda found: found[1] or r"\_", text, flags=re.DOTALL)


def markdown(table: ResultTable) -> str:
    """A table in Markdown."""
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def chart(plots: Sequence[Plot]) -> Any:
    """All plots beside each other, as an Altair chart."""
    with needing("figures need altair and vl-convert", "plot"):
        import altair
        import vl_convert  # noqa: F401  (altair saves with it)
    drawn = [_draw(altair, plot) for plot in plots]
    whole = altair.concat(*drawn, columns=COLUMNS).resolve_scale(color="independent")
    plain = whole.configure(font="sans-serif").configure_title(fontSize=11, limit=WIDTH + 60)
    return plain.configure_legend(labelLimit=400)


def _draw(altair: Any, plot: Plot) -> Any:
    rows = [
        {"x": x, "y": y, "curve": curve.name, "kind": _kind(curve)}
        for curve in plot.curves
        for x, y in zip(curve.x, curve.y, strict=True)
        if not plot.log_y or y > 0
    ]
    names = list(dict.fromkeys(curve.name for curve in plot.curves))
    colours = altair.Scale(scheme="tableau10" if len(names) <= 10 else "tableau20")
    scattered = any(curve.points for curve in plot.curves)  # then room around points, not 0
    nice = scattered and not plot.log_x
    scale_x = altair.Scale(type="log" if plot.log_x else "linear", zero=False, nice=nice)
    zero = not (plot.log_y or scattered)
    scale_y = altair.Scale(type="log" if plot.log_y else "linear", zero=zero)
    ticks = altair.Axis() if plot.log_x else altair.Axis(tickCount=6, labelOverlap=True)
    if plot.log_x and max((x for curve in plot.curves for x in curve.x), default=1.0) < 0.01:
        ticks = altair.Axis(format="~e")  # else 0.000001 stands beside 1e-7
    base = altair.Chart(altair.InlineData(values=rows)).encode(
        x=altair.X("x:Q", title=plot.x, scale=scale_x, axis=ticks),
        y=altair.Y("y:Q", title=plot.y, scale=scale_y),
        color=altair.Color(
            "curve:N",
            sort=names,
            title=None,
            scale=colours,
            legend=altair.Legend(orient="bottom", columns=2),
        ),
        strokeDash=altair.StrokeDash(
            "kind:N",
            legend=None,
            scale=altair.Scale(domain=["found", "bound", "points"], range=[[1, 0], [5, 3], [1, 0]]),
        ),
    )
    lines = base.mark_line().transform_filter("datum.kind != 'points'")
    small = base.mark_point(size=12, filled=True).transform_filter("datum.kind == 'found'")
    large = base.mark_point(size=40, filled=True).transform_filter("datum.kind == 'points'")
    return (lines + small + large).properties(
        title=_wrapped(plot.title), width=WIDTH, height=HEIGHT
    )


def _kind(curve: Curve) -> str:
    if curve.points:
        return "points"
    return "bound" if curve.dashed else "found"


def _wrapped(title: str) -> list[str]:
    """A title in lines that fit its plot, broken after commas."""
    lines = [""]
    for part in title.split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > LONGEST_TITLE:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return lines
