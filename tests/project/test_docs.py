"""The documentation as it is rendered: underscores of formulas are no italics."""

from __future__ import annotations

import importlib.util

import pytest

from taut.reproduce.page import literal_underscores
from tests.helpers.places import ROOT

markdown_it = pytest.importorskip("markdown_it")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("docs/results/*.md")])
FORMULA = set("=‖^{}|_∞√Σ")


def italics(text: str) -> list[str]:
    """What Markdown sets in italics or bold because of underscores, or though it is a formula."""
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    found = []
    for block in parser.parse(text):
        inside: list[tuple[str, list[str]]] = []
        for token in block.children or []:
            if token.type in ("em_open", "strong_open"):
                inside.append((token.markup, []))
            elif token.type in ("em_close", "strong_close"):
                markup, parts = inside.pop()
                words = "".join(parts)
                if "_" in markup or (token.type == "em_close" and FORMULA & set(words)):
                    found.append(words)
            elif token.type == "text":
                for _, parts in inside:
                    parts.append(token.content)
    return found


def test_formulas_in_italics_are_found():
    assert italics("‖M‖_p = ‖M‖_{p′}") == ["p = ‖M‖"]
    assert italics("a *b=c* d") == ["b=c"]
    assert not italics("*so* l_q of l_p, `‖M‖_p = ‖M‖_{p′}` and ‖M‖\\_p = ‖M‖\\_{p′}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_formula_is_in_italics(page):
    assert not italics(page.read_text(encoding="utf-8"))


def test_the_page_of_theory_is_that_of_the_registry():
    spec = importlib.util.spec_from_file_location("write_theory", ROOT / "docs/write_theory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    assert written == module.page(), "write it again: python docs/write_theory.py"


def test_underscores_of_formulas_are_made_literal():
    text = "‖M‖_p = ‖M‖_{p′}, a_b, `‖M‖_p`, ‖M‖\\_p\n```\n‖M‖_p\n```\n_x"
    made = "‖M‖\\_p = ‖M‖\\_{p′}, a_b, `‖M‖_p`, ‖M‖\\_p\n```\n‖M‖_p\n```\n\\_x"
    assert literal_underscores(text) == made
    assert literal_underscores(made) == made
