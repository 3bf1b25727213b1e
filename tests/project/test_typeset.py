"""Formulas of the documentation: found in sentences, typeset as MathML, and never lost."""

from __future__ import annotations

import re
import sys

import pytest

from tests.helpers.places import DOCS, needs_repository

pytestmark = needs_repository
sys.path.insert(0, str(DOCS / "_sphinx"))
find_formulas = pytest.importorskip("find_formulas").find_formulas
formula_mathml = pytest.importorskip("formula_mathml")


def formulas(text: str, **options: bool) -> list[str]:
    parts = find_formulas(text, **options)
    assert "".join(part for _, part in parts) == text
    return [part for is_formula, part in parts if is_formula]


def test_initials_of_persons_are_not_variables() -> None:
    text = " S. Cen, Y. Wei, Y. Chi, Fast methods, where P is a plan."
    assert formulas(text, letters=True) == ["P"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("so ‖M‖_p ≤ 2s₁(1 − s₁), as above.", ["‖M‖_p ≤ 2s₁(1 − s₁)"]),
        ("for θ > 0 the sum", ["θ > 0"]),
        ("s = softmax(λx), J = λM (see there).", ["s = softmax(λx)", "J = λM"]),
        ("at most δᵀMε ≤ max(δᵀMδ, εᵀMε), and", ["δᵀMε ≤ max(δᵀMδ, εᵀMε)"]),
        ("gᵢ = αq (αRq under rotations)", ["gᵢ = αq", "αRq"]),
        ("is 1/√(s² + ε)-Lipschitz there", ["1/√(s² + ε)"]),
        ("from de → en, where 1 → 2", ["1 → 2"]),
        ("The file record_json.py has 4,096 lines, a lot.", []),
        ("two-class case of self-attention, l2 and 8 of 10", []),
        ("With a = ‖G‖ and a larger one", ["a = ‖G‖"]),
    ],
)
def test_formulas_are_found_between_words(text, found):
    assert formulas(text) == found


def test_single_letters_are_variables_on_pages_of_proofs():
    assert formulas("Row i of M, and a row of Wq") == []
    assert formulas("Row i of M, and a row of Wq", letters=True) == ["i", "M", "Wq"]


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        ("s₁²", ["<msubsup><mi>s</mi><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></msubsup>"]),
        ("√(2n)", ["<msqrt><mn>2</mn><mi>n</mi></msqrt>"]),
        ("e^{−λx}", ["<msup><mi>e</mi>", "<mo stretchy=\"false\">−</mo>", "<mi>λ</mi>"]),
        ("x^αₖ", ["<msup><mi>x</mi><mrow><msub><mrow><mi>α</mi>", "<mi>k</mi></mrow></msub>"]),
        ("½", ["<mfrac><mn>1</mn><mn>2</mn></mfrac>"]),
        ("Wq x", ["<msub><mi>W</mi><mi>q</mi></msub>"]),
        ("‖A‖_p′", ["<mrow><msup><mi>p</mi><mo>′</mo></msup></mrow>"]),
        ("A_ij", ["<msub><mi>A</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>"]),
        ("‖v̄‖", ['form="prefix"', "<mover", 'form="postfix"']),
        ("a < b & c", None),
    ],
)  # fmt: skip
def test_formulas_become_mathml(formula, parts):
    if parts is None:
        with pytest.raises(formula_mathml.FormulaError, match="not known"):
            formula_mathml.mathml(formula)
        return
    made = formula_mathml.mathml(formula)
    assert made.startswith("<math><mrow>")
    for part in parts:
        assert part in made
    assert len(re.findall(r"<m\w+", made)) == len(re.findall(r"</m\w+>", made))


def test_long_formulas_can_be_broken():
    """Before relations and sums, never inside of brackets and bars, and nothing is lost."""
    formula = "(a + b)² − ‖c + d‖ ≤ ‖aᵢ‖‖bᵢ‖ + √(c + d)"
    pieces = formula_mathml.lines(formula)
    plain = [re.sub("<.*?>", "", piece) for piece in pieces]
    assert plain == ["(a+b)2", "−‖c+d‖", "≤‖ai‖‖bi‖", "+c+d"]
    assert all('<mo form="infix"' in piece for piece in pieces[1:])
    whole = re.sub("<.*?>", "", formula_mathml.mathml(formula))
    assert "".join(plain) == whole
    assert len(formula_mathml.lines("n = 2 + 3")) == 1
    assert 'lspace="0"' in formula_mathml.lines("≤ 1")[0]


@pytest.mark.parametrize("formula", ["(1 − x", "x^", "√", "‖x⟩", "{1"])
def test_what_cannot_be_read_is_an_error(formula):
    with pytest.raises(formula_mathml.FormulaError):
        formula_mathml.mathml(formula)


def texts(page: str) -> list[str]:
    """Everything of a page that is neither code nor a link's address."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    found = [""]
    for block in parser.parse(page):
        for token in block.children or []:
            if token.type in ("text", "text_special"):
                found[-1] += token.content
            elif token.type == "softbreak":
                found[-1] += "\n"
            else:
                found.append("")
        found.append("")
    return found


PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("results/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_formula_of_the_pages_can_be_typeset(page):
    for text in texts(page.read_text(encoding="utf-8")):
        for formula in formulas(text, letters="proofs" in page.stem or page.stem == "tight"):
            formula_mathml.mathml(formula)
