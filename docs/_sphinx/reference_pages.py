"""Sphinx: a page for each public function and class, and the reference as a list of them.

``reference.md`` holds one directive for each public name. When the pages are built, every directive
moves to a page of its own in ``api/``, and a table with a line about each stands in its place.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(r"```\{eval-rst\}\n(.*?)```\n?", re.DOTALL)
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: ([\w.]+)(.*(?:\n(?=[ \n]).*)*)", re.MULTILINE)
MODULE = re.compile(r"^\.\. currentmodule:: ([\w.]+)$", re.MULTILINE)


class PublicName(NamedTuple):
    """A name of the reference, with the directive that describes it."""

    module: str
    name: str
    directive: str

    @property
    def path(self) -> str:
        """Its full name, which is that of its page."""
        return f"{self.module}.{self.name}"


def names_in(block: str) -> list[PublicName]:
    """The names of one block of directives."""
    found = MODULE.search(block)
    module = found[1] if found else "taut"
    return [PublicName(module, each[2], each[0].rstrip()) for each in DIRECTIVE.finditer(block)]


def first_line(name: PublicName) -> str:
    """The first sentence of its docstring, or of the directive."""
    try:
        thing = getattr(importlib.import_module(name.module), name.name)
    except (ImportError, AttributeError):
        return ""
    if "autodata" in name.directive:
        text = name.directive.split("\n")[-1].strip()
    else:
        text = (inspect.getdoc(thing) or "").split("\n\n")[0]
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def write_pages(app: Any) -> None:
    """Write a page for each name, and remove those of names that are gone."""
    folder = Path(app.srcdir) / "api"
    source = (Path(app.srcdir) / "reference.md").read_text(encoding="utf-8")
    pages = {}
    for block in BLOCK.findall(source):
        for name in names_in(block):
            pages[f"{name.path}.md"] = (
                f"---\norphan: true\n---\n\n# {name.path}\n\n```{{eval-rst}}\n"
                f".. currentmodule:: {name.module}\n\n{name.directive}\n```\n\n"
                "[All of the reference](../reference.md)\n"
            )
    if folder.is_dir() and not {file.name for file in folder.iterdir()} <= set(pages):
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    for file, text in pages.items():
        place = folder / file
        if not place.exists() or place.read_text(encoding="utf-8") != text:  # else it stays built
            place.write_text(text, encoding="utf-8")


def list_names(app: Any, docname: str, source: list[str]) -> None:
    """Replace the directives of the reference by tables of links."""
    if docname == "reference":
        source[0] = BLOCK.sub(lambda block: _table(names_in(block[1])), source[0])


def _table(names: list[PublicName]) -> str:
    lines = ["| name | what it is |", "|---|---|"]
    lines += [f"| [`{each.name}`](api/{each.path}.md) | {first_line(each)} |" for each in names]
    return "\n".join(lines) + "\n"


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", list_names)
    return {"parallel_read_safe": True}
