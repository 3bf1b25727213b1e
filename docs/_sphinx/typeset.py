"""Sphinx: typeset the formulas of all pages, and warn of what cannot be typeset.

Pages and docstrings hold formulas in plain Unicode, so that they can be read in an editor and on a
terminal. Here they become MathML, which browsers draw by themselves. With ``-W`` a warning ends the
build: formulas that cannot be read, underscores that Markdown took for italics, leftover TeX.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from find_formulas import find_formulas
from formula_mathml import FormulaError, lines, mathml
from sphinx import addnodes
from sphinx.util import logging

LOG = logging.getLogger(__name__)
CODE = (
    nodes.literal, nodes.literal_block, nodes.doctest_block, nodes.raw, nodes.math, nodes.comment,
    nodes.strong, nodes.image, addnodes.desc_signature, addnodes.literal_strong,
    addnodes.literal_emphasis, addnodes.index, nodes.target, addnodes.toctree, nodes.field_name,
)  # fmt: skip
TEX = re.compile(r"\\[a-zA-Z]{2,}|\$[^$\s][^$]*\$")
SYMBOLS = re.compile("[=‖^{}√Σ∞≤≥]|_[a-z0-9{]")
WORD = re.compile("[A-Za-z]{4,}")
# Pages on which a single letter is a variable.
# What stays in the line of the formula before it, and signs that stay in that of their number.
TAIL = re.compile(r"[,.;:)\]’?!]+|\s?%|-[a-zA-Z]+")
LONGEST = 22  # characters of a formula that fit on a telephone
PERCENT = re.compile(r"(?<=\d) (?=%)")
PROOFS = re.compile(r"proofs|theory|tight|consequence|glossary$")


class formula(nodes.Inline, nodes.TextElement):  # noqa: N801  (nodes are written like this)
    """A formula: its text, which other writers show, and ``block`` if it has a line for itself."""


def typeset(app: Any, doctree: Any) -> None:
    """Replace formulas in the text of a page."""
    page = app.env.docname
    letters = bool(PROOFS.search(page))
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, formula) or _inside(text, CODE):
            continue
        if _inside(text, (nodes.emphasis,)) and SYMBOLS.search(text) and not WORD.search(text):
            _warn(f"underscores or stars set a formula in italics: {str(text)!r}", text)
            continue
        if TEX.search(text):
            _warn(f"TeX is left over: {TEX.search(text)[0]!r}", text)  # type: ignore[index]
        _replace(text, letters)


def _replace(text: Any, letters: bool) -> None:
    said = PERCENT.sub("\u00a0", text.astext())
    parts = find_formulas(said, letters=letters)
    if not any(is_formula for is_formula, _ in parts):
        if said != text:
            text.parent.replace(text, nodes.Text(said))
        return
    paragraph = text.parent
    alone = isinstance(paragraph, nodes.paragraph) and len(paragraph) == 1
    alone = alone and not isinstance(paragraph.parent, nodes.entry)  # a cell is no line of its own
    block = alone and len([p for p in parts if p[0]]) >= 1 and _only_symbols(parts)
    made: list[Any] = []
    for place, (is_formula, part) in enumerate(parts):
        if not is_formula:
            held = TAIL.match(part) if place and parts[place - 1][0] else None
            made.append(nodes.Text(part[held.end() :] if held else part))
            continue
        after = parts[place + 1][1] if place + 1 < len(parts) else ""
        tail = found[0] if (found := TAIL.match(after)) else ""
        try:
            node = formula(part + tail, part + tail, block=block, mathml=_inline(part, tail))
        except FormulaError as error:
            _warn(str(error), text)
            node = nodes.Text(part)
        made.append(node)
    if block:  # one line: what stands between its formulas belongs to it
        whole = "".join(part for _, part in parts)
        rows = "<mspace width='2em'/>".join(
            mathml(part).removeprefix("<math>").removesuffix("</math>")
            + ("<mo>,</mo>" if index + 1 < sum(f for f, _ in parts) else "")
            for index, (_, part) in enumerate([p for p in parts if p[0]])
        )
        end = parts[-1][1].strip() if not parts[-1][0] else ""
        tail = f"<mtext>{end}</mtext>" if end else ""
        xml = f'<math display="block"><mrow>{rows}{tail}</mrow></math>'
        made = [formula(whole, whole, block=True, mathml=xml)]
    text.parent.replace(text, made)


def _inline(part: str, tail: str) -> str:
    """A formula in a sentence: it may be broken, but not before the punctuation behind it."""
    pieces = lines(part)
    for place, piece in enumerate(pieces):
        if len(re.sub("<.*?>", "", piece)) > LONGEST:
            pieces[place] = f'<span class="long">{piece}</span>'
    if tail:
        pieces[-1] = f'<span class="whole">{pieces[-1]}{escape(tail)}</span>'
    return "<wbr>".join(pieces)


def _only_symbols(parts: list[tuple[bool, str]]) -> bool:
    """Whether nothing but spaces and punctuation stands between formulas."""
    return all(is_formula or not part.strip(" ,.;:\n") for is_formula, part in parts)


def _inside(node: Any, kinds: tuple[type, ...]) -> bool:
    while node is not None:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


def _warn(words: str, node: Any) -> None:
    LOG.warning(words, location=node.parent, type="formula")


def keep_bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Let |x| in a docstring be a formula: reStructuredText would look for a substitution."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            parts = re.split("(``.*?``)", line)
            kept = [p if p.startswith("``") else re.sub(r"(?<!\\)\|", r"\\|", p) for p in parts]
            lines[number] = "".join(kept)


def _visit_html(self: Any, node: Any) -> None:
    self.body.append(node["mathml"])
    raise nodes.SkipNode


def _visit_other(self: Any, node: Any) -> None:
    """The text of the formula, as it is written."""


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_node(
        formula, html=(_visit_html, None),
        text=(_visit_other, _visit_other), latex=(_visit_other, _visit_other),
    )  # fmt: skip
    app.connect("doctree-read", typeset)
    app.connect("autodoc-process-docstring", keep_bars, priority=900)  # after napoleon
    return {"parallel_read_safe": True}
