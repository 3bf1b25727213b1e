"""Templates of pages: text of others is text, never markup, and one script alone may run."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from taut._base.optional import needing
from taut._base.terminal_text import printable
from taut.audit.report.svg_style import style

HERE = Path(__file__).parent


def rendered(template: str, **values: Any) -> str:
    """A page from a template in this folder, with the rules and the script that all pages share.

    Everything that is not marked as safe is escaped, and characters that cannot be seen are written
    out. The policy of a page allows the script by its hash, and nothing from a network.
    """
    with needing("reports need jinja2", "report"):
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    templates = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    script = (HERE / "page.js").read_text(encoding="utf-8")
    rules = (HERE / "page.css").read_text(encoding="utf-8")
    return templates.get_template(template).render(
        **values,
        style=Markup(rules + style()),
        script=Markup(script),
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    )
