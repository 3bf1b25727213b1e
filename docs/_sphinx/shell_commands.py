"""Sphinx: commands that a narrow screen breaks show where the next one begins.

Every command of shell code gets a span of its own, which the style sheet indents, and every option,
so that none is broken after its dashes (``_static/taut.css``).
"""

from __future__ import annotations

import re
from typing import Any

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
    app.connect("html-page-context", commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
