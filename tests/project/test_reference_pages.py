"""The pages of the reference: one for each public name, and a line about each in the list."""

from __future__ import annotations

import sys

import pytest

from tests.helpers.places import DOCS, needs_repository
from tests.project.test_public_names import in_the_reference

pytestmark = needs_repository
sys.path.insert(0, str(DOCS / "_sphinx"))
reference_pages = pytest.importorskip("reference_pages")
pytest.importorskip("torch")


class App:
    def __init__(self, folder):
        self.srcdir = str(folder)


def test_every_public_name_has_a_page(tmp_path):
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    (tmp_path / "reference.md").write_text(text, encoding="utf-8")
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "taut.gone.md").write_text("an old page")
    reference_pages.write_pages(App(tmp_path))
    made = {file.stem for file in (tmp_path / "api").iterdir()}
    directives = {each.path for block in reference_pages.BLOCK.findall(text)
                  for each in reference_pages.names_in(block)}  # fmt: skip
    assert made == directives
    assert made <= in_the_reference()
    page = (tmp_path / "api" / "taut.local_lipschitz.md").read_text(encoding="utf-8")
    assert ".. autofunction:: local_lipschitz(x, p=2" in page


def test_the_list_says_what_each_name_is():
    source = [(DOCS / "reference.md").read_text(encoding="utf-8")]
    reference_pages.list_names(None, "reference", source)
    assert "[`softmax`](api/taut.softmax.md) |" in source[0]
    assert "eval-rst" not in source[0]
    lines = [line for line in source[0].splitlines() if line.startswith("| [`")]
    empty = [line for line in lines if line.endswith("|  |")]
    assert len(lines) > 200
    assert not empty
