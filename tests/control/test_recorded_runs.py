"""The training run on real text: what the documentation says of it is what was recorded."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from tests.helpers.places import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("altair")

RUNS = json.loads((ROOT / "docs" / "results" / "control.json").read_text(encoding="utf-8"))["runs"]
PARTS = ("AM", "LA", "LF")


def script(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_record(monkeypatch):
    text = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")
    figure = script("control_figure", monkeypatch)
    for line in figure.rows(RUNS):
        assert line in text


def test_what_is_said_of_the_run():
    assert sorted({run["seed"] for run in RUNS}) == [0, 1, 2]
    for run in RUNS:
        assert run["verify against SVD"] < 1e-12
        losses = [at["loss"] for at in run["curve"]]
        assert losses[-1] < 0.7 * losses[0]
        penalty = [sum(at[part] for part in PARTS) for at in run["curve"]]
        if run["method"] == "VAR-III":
            assert penalty[-1] < 0.4 * penalty[0]
            assert all(run["curve"][-1][part] < run["curve"][0][part] for part in ("LA", "LF"))
        elif run["method"] == "cap":
            assert run["largest sigma after each step"] <= 1.0
        elif run["method"] == "cosine":
            for _, layers in run["attention: certificate, measured, searched"]:
                assert all(max(measured, searched) <= bound for bound, measured, searched in layers)


@pytest.mark.slow
def test_a_shorter_run_says_the_same(monkeypatch):
    """200 steps with a cap, which holds after each; and with the penalties, which fall."""
    experiment = script("control_shakespeare", monkeypatch)
    monkeypatch.setattr(experiment, "STEPS", 200)
    learn, test = experiment.plays()
    tokenizer = experiment.tokenizer_for(learn, 512)
    row, rest = (experiment.tokens(tokenizer, text) for text in (learn, test))
    pieces = rest[: 64 * experiment.LENGTH].view(-1, experiment.LENGTH)
    cap = experiment.run("cap", 3, row, pieces)
    assert cap["largest sigma after each step"] <= 1.0
    pulled = experiment.run("VAR-III", 3, row, pieces)["curve"]
    assert sum(pulled[-1][part] for part in PARTS) < 0.6 * sum(pulled[0][part] for part in PARTS)
