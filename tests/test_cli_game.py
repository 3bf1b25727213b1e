"""`taut game` as a person runs it: in a process of its own, with files, pictures and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("typer")

PENNIES = ",heads,tails\nheads,1,-1\ntails,-1,1.5\n"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "pennies.csv").write_text(PENNIES)
    (tmp_path / "chicken.csv").write_text("0,7\n2,6\n---\n0,2\n7,6\n")

    def call(*arguments, code=0, **env):
        done = subprocess.run(
            [sys.executable, "-m", "taut.cli", "game", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "100", **env},
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code in (0, 3) else done.stderr

    call.folder = tmp_path
    return call


def test_a_game_is_solved_and_shown(run):
    said = run("pennies.csv", "--tau", "0.5")
    for part in (
        "zero-sum game, 2 × 2",
        "row pays column",
        "duality gap",
        "as asked for",
        "heads",
        "(pays)",
    ):
        assert part in said
    assert "certified for tau > 1.125" in said
    assert "\x1b" not in said  # no colours into a pipe


def test_json_is_the_answer(run):
    answer = json.loads(run("pennies.csv", "--tau", "0.5", "--json"))
    assert answer["converged"] is True
    assert sum(answer["x"]) == pytest.approx(1)
    assert answer["row_names"] == ["heads", "tails"]
    assert answer["certificate"]["factor"]["theorem"] == ["dsfp-tv"]
    assert (answer["zero_sum"], answer["row_player"], answer["tau"]) == (True, "pays", 0.5)
    nash = json.loads(run("pennies.csv", "--nash", "--json"))
    assert nash["x"][0] == pytest.approx(2.5 / 4.5, abs=1e-5)
    logit = json.loads(run("chicken.csv", "--tau", "0.5", "--json"))
    assert logit["x"][0] == pytest.approx(0.400537600868)


def test_general_sum_and_nash_are_shown(run):
    assert "there may be others" in run("chicken.csv", "--tau", "0.5")
    assert "the only equilibrium" in run("chicken.csv", "--tau", "5")
    assert "annealing to tau" in run("pennies.csv", "--nash")


def test_what_is_not_reached_is_said(run):
    said = run("pennies.csv", "--tau", "0.1", "--method", "dsfp", "--max-iterations", "20", code=3)
    assert "NOT CONVERGED" in said
    assert "budget" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pennies.csv"], "give --tau"),
        (["pennies.csv", "--tau", "0"], "--tau must be > 0, got 0.0; for tau -> 0 use --nash"),
        (["pennies.csv", "--tau", "1", "--nash"], "one of --nash and --tau"),
        (["none.csv", "--tau", "1"], "there is no file none.csv"),
        (["bad.csv", "--tau", "1"], "bad.csv, line 2, column 2: 'x' is not a number"),
        (["chicken.csv", "--nash"], "the game is not zero-sum"),
        (["chicken.csv", "--tau", "1", "--method", "dsfp"], "belong to zero-sum games"),
        (["pennies.csv", "--tau", "1", "--plot", "a.bmp"], "must end in .svg, .png, .html"),
        (["pennies.csv", "--tau", "1", "--plot", "no/a.svg"], "there is no folder"),
        (["pennies.csv", "--tau", "1", "--method", "magic"], "method must be one of"),
        (["pennies.csv", "--nash", "--method", "dsfp"], "belong to --tau"),
        (["pennies.csv", "--tau", "1", "--plot", "folder.svg"], "is a directory"),
    ],
)
def test_wrong_input_is_explained(run, arguments, message):
    (run.folder / "bad.csv").write_text("1,2\n3,x\n")
    (run.folder / "folder.svg").mkdir()
    assert message in run(*arguments, code=2)


def test_pictures(run):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    for ending, start in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".html", b"<!DOCTYPE html>")):
        run("pennies.csv", "--tau", "1.3", "--method", "dsfp", "--plot", f"gap{ending}")
        data = (run.folder / f"gap{ending}").read_bytes()
        assert data.lstrip().startswith(start)
        if ending != ".png":
            assert b"dsfp-tv" in data
        if ending == ".html":
            assert b'src="http' not in data  # works offline
    assert sorted(p.name for p in run.folder.glob(".*")) == []


def test_a_reader_may_leave_early_and_terminals_may_be_plain(run):
    command = [sys.executable, "-m", "taut.cli", "game", "pennies.csv", "--tau", "0.5"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=run.folder
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert "zero-sum game" in run("pennies.csv", "--tau", "0.5", PYTHONIOENCODING="ascii")


def test_names_are_text_only(run):
    (run.folder / "names.csv").write_text('"[red]a[/red]",b\n1,2\n3,4\n')
    assert "[red]a[/red]" in run("names.csv", "--tau", "1")


def test_many_strategies_are_shortened(run):
    np.save(run.folder / "large.npy", np.random.default_rng(0).normal(size=(30, 40)))
    said = run("large.npy", "--tau", "0.5", "--show", "5")
    assert "… and 25 more" in said
    assert "… and 35 more" in said


def test_ctrl_c_gives_the_best_so_far(tmp_path):
    (tmp_path / "pennies.csv").write_text(PENNIES)
    options = ["--tau", "0.1", "--method", "dsfp", "--max-iterations", "1000000000", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "taut.cli", "game", "pennies.csv", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(8)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    answer = json.loads(said)
    assert process.returncode == 3
    assert answer["status"] == "stopped"
    assert answer["iterations"] > 0
