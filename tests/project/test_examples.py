"""The examples run as they are, and say what their readers came for."""

from __future__ import annotations

import inspect
import os
import runpy

import pytest

from tests.helpers.places import ROOT, needs_repository

# What each reader looks for in the output.
SAYS = {
    "audit_a_transformer": "head 0: mean 0.",
    "check_a_paper": "(agrees)",
    "prove_a_bound": "The class cannot change within",
    "solve_a_game": "Nash equilibrium: [0.25 0.25 0.5 ]",
    "train_under_a_constraint": "Every map holds: True",
    "train_with_hugging_face": "Values of attention at a step: 15",
    "train_with_lightning": "Every map holds: True",
}
pytestmark = needs_repository


def test_the_example_of_a_configuration_is_read():
    tomllib = pytest.importorskip("tomllib")
    pytest.importorskip("typer")
    from taut.cli.audit import audit

    given = tomllib.loads((ROOT / "examples" / "audit.toml").read_text(encoding="utf-8"))
    known = set(inspect.signature(audit).parameters)
    assert {key.replace("-", "_") for key in given} <= known
    assert {"model", "data"} <= set(given)


def test_every_example_is_tested_short_and_listed():
    files = {file.stem: file.read_text(encoding="utf-8") for file in ROOT.glob("examples/*.py")}
    assert set(files) == set(SAYS)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, text in files.items():
        assert text.count("\n") <= 50, f"{name} is too long to be read at a glance"
        assert f"(examples/{name}.py)" in readme


@pytest.mark.filterwarnings("ignore")  # Lightning has advice for large trainings
@pytest.mark.parametrize("name", SAYS)
def test_examples_run_offline(name, capsys, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if name == "train_with_lightning":
        pytest.importorskip("lightning")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out
    assert os.listdir(tmp_path) == [], "an example leaves nothing behind"
