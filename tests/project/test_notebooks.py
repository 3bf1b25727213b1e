"""The notebooks run, and what is stored in them is what they print."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.helpers.places import DOCS, needs_repository

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("altair")
pytestmark = needs_repository
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def runner():
    spec = importlib.util.spec_from_file_location("write_notebooks", DOCS / "write_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(notebook):
    return [
        "".join(output["text"])
        for cell in notebook["cells"] for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
    ]  # fmt: skip


def words(text):
    """Text without its numbers, which differ in the last digits from machine to machine."""
    return [word for word in text.split() if not any(c.isdigit() for c in word)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_prints_what_is_stored(file, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    stored = json.loads(file.read_text(encoding="utf-8"))
    found = runner().run(stored)
    assert [words(text) for text in printed(found)] == [words(text) for text in printed(stored)]
    assert sum(bool(cell.get("outputs")) for cell in found["cells"]) >= 4
    assert not list(tmp_path.iterdir())


def test_there_are_two():
    assert [file.stem for file in NOTEBOOKS] == ["audit_a_model", "stabilise_a_training"]
