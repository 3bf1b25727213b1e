"""Newhouse et al. 2025: their network and formula, trainings at a small scale, the page."""

from __future__ import annotations

import math

import pytest
import torch

from taut import Ball
from taut.networks import certify
from taut.reproduce import Options, run
from taut.reproduce.experiments import newhouse_2025
from taut.reproduce.lipschitz import run as runs
from taut.reproduce.lipschitz.characters import Characters
from taut.reproduce.lipschitz.counterexample import exceed_formula
from taut.reproduce.lipschitz.newhouse_network import (
    NewhouseTransformer,
    limit_for,
    limits,
    their_bound,
)

SMALL = {"tokens": 6, "width": 8, "layers": 1, "heads": 2}


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SIZES", SMALL)
    file = tmp_path / "text.txt"
    file.write_text("to be or not to be, that is the question. " * 40, encoding="utf-8")
    return file


def test_the_formula_is_solved_for_the_limit_of_weights():
    """At the limit 1 every branch counts 1, and GELU is divided by its slope once more."""
    model = NewhouseTransformer(8, **SMALL)
    with torch.no_grad():
        for weight, limit in limits(model, 1.0):
            torch.nn.init.orthogonal_(weight, gain=limit)
    assert their_bound(model) == pytest.approx((1 + 1 / 1.1289) / 2, rel=1e-6)
    for target in (1.0, 2.0, 100.0):
        with torch.no_grad():
            for weight, limit in limits(model, limit_for(target, 1)):
                torch.nn.init.orthogonal_(weight, gain=limit)
        assert their_bound(model) == pytest.approx(target, rel=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_their_formula_is_exceeded(seed):
    found = exceed_formula(seed, steps=60)
    assert found.allowed == pytest.approx(0.5)
    assert found.found > 1.5 * found.allowed


def test_the_bound_that_is_proved_for_their_weights_holds():
    torch.manual_seed(0)
    model = NewhouseTransformer(8, **SMALL).double()
    with torch.no_grad():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    reach = math.sqrt(8)
    bound = certify(model, Ball(reach, shape=(6, 8)), norm="token", measure=False).bound.upper[0]
    x = torch.randn(64, 6, 8, dtype=torch.float64)
    x = 0.99 * reach * x / x.norm(dim=-1, keepdim=True)
    step = 1e-3 * torch.randn_like(x)
    moved = model(inputs_embeds=x + step) - model(inputs_embeds=x)
    ratio = moved.norm(dim=-1).amax(1) / step.norm(dim=-1).amax(1)
    assert 0 < float(ratio.detach().max()) <= bound


@pytest.mark.parametrize("optimiser", ["muon", "adamw"])
@pytest.mark.parametrize("method", ["taut", "newhouse"])
def test_a_training_keeps_its_bound(text, method, optimiser):
    found = runs.train(
        runs.TextRun(method, 3.0, optimiser, 0, 3, 2), Characters.read(text), "training"
    )
    assert 0 <= found["accuracy"] <= 1
    assert found["their_formula"] is None or found["their_formula"] <= 3.0
    assert method == "newhouse" or found["bound"] <= 3.0
    radii = [found["certified"][str(r)] for r in runs.RADII]
    assert radii == sorted(radii, reverse=True)
    assert radii[0] <= found["accuracy"]


def test_the_experiment_resumes_and_makes_its_page(text, tmp_path, monkeypatch):
    monkeypatch.setattr(newhouse_2025, "SIZES", SMALL)
    options = Options(quick=True, data=(str(text),), folder=tmp_path)
    result = run("newhouse-2025", options)
    assert [claim.agrees for claim in result.claims] == [False, None, None, None, None]
    assert len(result.tables[0].rows) == 2

    def untrained(*_):
        raise AssertionError("it was trained already")

    monkeypatch.setattr(newhouse_2025, "train", untrained)
    assert run("newhouse-2025", options).tables == result.tables


def test_bad_input_is_told(text):
    with pytest.raises(ValueError, match="needs a text"):
        run("newhouse-2025", Options(quick=True))
    with pytest.raises(ValueError, match="method must be"):
        runs.train(runs.TextRun("his", 1.0, "muon", 0, 1, 1), Characters.read(text), "")
    with pytest.raises(ValueError, match="optimiser must be"):
        runs.train(runs.TextRun("taut", 1.0, "sgd", 0, 1, 1), Characters.read(text), "")
    text.write_text("short")
    with pytest.raises(ValueError, match="too few"):
        runs.train(runs.TextRun("taut", 1.0, "muon", 0, 1, 1), Characters.read(text), "")
