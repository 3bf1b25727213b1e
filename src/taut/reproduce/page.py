"""Write a result down: a JSON record, a Markdown page, and its figure as SVG and PNG."""

from __future__ import annotations

import re
from pathlib import Path

from taut._base.files import write_whole
from taut._base.json_files import plain
from taut.reproduce.figures import save_figure
from taut.reproduce.result import Result, ResultTable

AGREES = {True: "yes", False: "**no**", None: "–"}


def write(result: Result, folder: Path, command: str) -> list[Path]:
    """The files of a result, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{result.name}.json", folder / f"{result.name}.md"]
    write_whole(result.to_json(command), files[0])
    write_whole(page(result, command), files[1])
    if result.plots:
        for ending in (".svg", ".png"):
            files.append(folder / f"{result.name}{ending}")
            save_figure(result.plots, files[-1])
    return files


def page(result: Result, command: str) -> str:
    """The page of a result in Markdown."""
    lines = [f"# {result.title}", "", *result.remarks, ""]
    if result.claims:
        rows = [[c.statement, c.paper, c.found, AGREES[c.agrees]] for c in result.claims]
        lines += [markdown(ResultTable("", result.claims_header, rows)), ""]
    if result.plots:
        titles = "; ".join(plot.title for plot in result.plots)
        lines += [f"![{titles}]({result.name}.svg)", ""]
    for table in result.tables:
        lines += [f"## {table.title}", "", markdown(table), ""]
    settings = plain(result.settings)  # as in the record, where an infinite exponent is a word
    told = ", ".join(f"`{name} = {value}`" for name, value in settings.items())
    told = told.replace("'inf'", "inf")
    lines += ["## How it was made", "", "```sh", command, "```", "", f"Settings: {told}.", ""]
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
