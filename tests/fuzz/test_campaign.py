"""The campaign finds bounds that were broken on purpose, continues where it stopped, and counts."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz import softmax_check as check
from fuzz.areas import AREAS
from fuzz.areas.exact_constants import ExactConstants
from fuzz.campaign import again, campaign, found
from fuzz.case import Case, packed, unpacked
from fuzz.table import page
from fuzz.worker import Worker
from taut._softmax.kernel import error
from tests.helpers import softmax_oracle as oracle


def worker(folder, *names, seed=0):
    return Worker([AREAS[name]() for name in names], seed, 0, folder)


def numpy_only(monkeypatch):
    """Other libraries take seconds to load and to compile."""
    monkeypatch.setattr(
        ExactConstants, "_way", lambda *_: {"backend": "numpy", "layout": "packed", "scale": 1.0}
    )


def test_exact_constants_hold(tmp_path, monkeypatch):
    numpy_only(monkeypatch)
    work = worker(tmp_path, "exact constants")
    work.run(60, rounds=8)
    tally = work.tallies["exact constants"]
    assert tally.cases > 1000
    assert tally.broken == 0
    assert 0 < tally.worst < 1


@pytest.mark.parametrize("allowed", [0.3, 3.0])
def test_sides_that_are_too_narrow_are_found(tmp_path, monkeypatch, capsys, allowed):
    """Less rounding error is allowed than there is: one learns, the other is found at once."""
    numpy_only(monkeypatch)
    monkeypatch.setattr(error, "ERROR", allowed)
    work = worker(tmp_path, "exact constants")
    for _ in range(60):
        work.run(60, rounds=1)
        if work.tallies["exact constants"].broken:
            break
    assert work.tallies["exact constants"].broken
    assert "BROKEN exact constants" in capsys.readouterr().out
    (kept,) = (tmp_path / "broken").iterdir()
    assert max(again(kept)) > 1
    monkeypatch.undo()
    assert max(again(kept)) <= 1


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    numpy_only(monkeypatch)
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    worker(tmp_path / "whole", "exact constants").run(60, rounds=6)
    for _ in range(2):
        worker(tmp_path / "parts", "exact constants").run(60, rounds=3)
    names = ["exact constants"]
    whole, parts = (found(names, tmp_path / part)[names[0]] for part in ("whole", "parts"))
    assert (whole.rounds, whole.cases, whole.worst) == (parts.rounds, parts.cases, parts.worst)
    with pytest.raises(ValueError, match="of seed 0, not 1"):
        worker(tmp_path / "parts", "exact constants", seed=1)
    shown = page({"exact constants": whole}, "python -m fuzz")
    assert f"{whole.cases:,} of 10,000,000 rows" in shown
    assert "stopped before these had the cases of a full run: exact constants" in shown


def test_the_check_agrees_with_arbitrary_precision():
    """Sides that miss the truth by less than the check can see are left to Arb."""
    for category in oracle.CATEGORIES:
        for row in oracle.hard_rows(category, "float64", 6, seed=5):
            w = check.weights(row[None], 1.3)
            exact = oracle.exact_constants(row, 1.3, bits=400)
            for rule, truth in zip((check.one_ratio, check.two_ratio), exact, strict=True):
                value = float(truth.mid())
                if value < 1e-300 or value > 0.64:
                    continue
                for step, expected in ((1e-14, True), (-1e-14, False)):
                    wide = check.Sides(*(np.array([value * (1 + s)]) for s in (-step, 0.0, step)))
                    assert bool(rule(w, 1.3, wide)[1][0]) == expected, (category, row)


def test_errors_and_numbers_that_are_none_count_as_broken(tmp_path, monkeypatch):
    numpy_only(monkeypatch)
    work = worker(tmp_path, "exact constants")
    monkeypatch.setattr(ExactConstants, "judge", lambda self, case: np.array([0.5, np.nan]))
    work.run(60, rounds=1)
    monkeypatch.setattr(ExactConstants, "judge", lambda self, case: 1 / 0)
    work.run(60, rounds=1)
    assert work.tallies["exact constants"].broken == 2
    assert len(list((tmp_path / "broken").iterdir())) == 2


def test_cases_are_kept_as_they_are():
    case = Case({"x": np.float32([[1.5, -np.inf]])}, {"scale": 0.1, "kind": "é"})
    (same,), more = unpacked(packed([case], {"why": "so"}))
    assert more == {"why": "so"}
    assert same.settings == case.settings
    np.testing.assert_array_equal(same["x"], case["x"])
    assert same["x"].dtype == np.float32


@pytest.mark.slow
def test_processes_share_the_work(tmp_path):
    tallies = campaign(["exact constants"], seconds=10, seed=3, processes=2, folder=tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 2
    assert tallies["exact constants"].cases > 1000
    assert tallies["exact constants"].broken == 0
