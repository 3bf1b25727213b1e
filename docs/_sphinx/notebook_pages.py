"""Sphinx: notebooks as pages, with the outputs that are stored in them."""

from __future__ import annotations

import json
import re
from typing import Any

from myst_parser.sphinx_ import Parser

LONGEST = 60  # lines of one output


def markdown_of(notebook: dict[str, Any]) -> str:
    """Cells and outputs as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    return "\n\n".join(part for part in parts if part)


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _text("".join(output["text"]))
    data = output["data"]
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            inside = re.sub(r"\n\s*\n", "\n", "".join(data[kind]))  # a blank line would end it
            return f'```{{raw}} html\n<div class="notebook-output">{inside}</div>\n```'
    return _text("".join(data["text/plain"]))


def _text(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    lines = [*lines[:LONGEST], "…"] if len(lines) > LONGEST else lines
    return "\n".join(["```text", *lines, "```"])


class NotebookParser(Parser):
    """Reads a notebook as the Markdown that it stands for."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: Any) -> None:
        """Parse cells and outputs."""
        super().parse(markdown_of(json.loads(inputstring)), document)


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True}
