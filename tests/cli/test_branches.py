"""`taut branches` as a person runs it."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("typer")
from tests.helpers.command_line import taut


def test_equilibria_are_listed_and_written(tmp_path):
    (tmp_path / "chicken.csv").write_text("0,7\n2,6\n---\n0,2\n7,6\n")
    said = taut("branches", "chicken.csv", "--temperature", "0.1", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "3 found, at least 3 exist" in said.stdout
    assert "sum to 1" in said.stdout
    told = taut("branches", "chicken.csv", "--temperature", "0.1", "--json", cwd=tmp_path)
    assert len(json.loads(told.stdout)["equilibria"]["temperature"]) == 3


def test_wrong_input_is_one_line(tmp_path):
    np.save(tmp_path / "wrong.npy", np.zeros((2, 2, 2, 2)))
    done = taut("branches", "wrong.npy", "--temperature", "0.1", cwd=tmp_path)
    assert done.returncode == 2
    assert "for N players" in " ".join(done.stderr.split())
