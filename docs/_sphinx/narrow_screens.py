"""Sphinx: mark what a narrow screen must show in another way, which style sheets cannot tell.

A cell of many words needs a wider column than a number does, and a picture of several panels is
unreadable at the width of a telephone, where it scrolls instead (``_static/taut.css``). A command
that is broken shows where the next one begins, and an option is not broken after its dashes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

MANY_CHARACTERS = 16  # in a column of numbers such a cell has three lines or more
WIDE_PICTURE = 450  # pixels: drawn at the width of a telephone its letters are below 8 pixels


def picture_width(path: Path) -> float:
    """The width that an SVG file says in its first lines; 0 for other files."""
    if path.suffix != ".svg" or not path.is_file():
        return 0
    found = re.search(r'<svg[^>]*\swidth="([\d.]+)"', path.read_text(encoding="utf-8")[:2000])
    return float(found[1]) if found else 0


def mark(app: Any, tree: nodes.document) -> None:
    """Give wordy cells and wide pictures a class of their own."""
    for cell in tree.findall(nodes.entry):
        if len(cell.astext()) > MANY_CHARACTERS:
            cell["classes"].append("wordy")
    for picture in tree.findall(nodes.image):
        if picture_width(Path(app.srcdir) / picture["uri"]) > WIDE_PICTURE:
            picture["classes"].append("wide-picture")


SHELL = re.compile(
    r'(<div class="highlight-sh [^>]*><div class="highlight"><pre>)(.*?)(</pre>)', re.S
)
OPTION = re.compile(r"(^|>)(--?[A-Za-z][\w-]*)")  # Pygments sets spaces in tags of their own


def commands_apart(page: str) -> str:
    """HTML with a span around every command of shell code, and around every option in it."""
    return SHELL.sub(lambda found: found[1] + _lines_apart(found[2]) + found[3], page)


def _lines_apart(code: str) -> str:
    lines = []
    for line in code.split("\n"):
        whole = line.count("<span") == line.count("</span")  # no string goes on in the next line
        marked = OPTION.sub(r'\1<span class="option">\2</span>', line)
        lines.append(f'<span class="command">{marked}</span>' if line and whole else line)
    return "\n".join(lines)


def commands(_app: Any, _name: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Called for every page that is written."""
    if "body" in context:
        context["body"] = commands_apart(context["body"])


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", mark)
    app.connect("html-page-context", commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
