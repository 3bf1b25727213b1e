"""Sphinx: mark what a narrow screen must show in another way, which style sheets cannot tell.

A cell of many words needs a wider column than a number does, and a picture of several panels is
unreadable at the width of a telephone, where it scrolls instead (``_static/taut.css``).
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


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
