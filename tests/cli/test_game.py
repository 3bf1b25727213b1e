"""`taut game` as a person runs it: with files, pictures, pipes and Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("typer")
from tests.helpers.command_line import taut

PENNIES = ",heads,tails\nheads,1,-1\ntails,-1,1.5\n"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "pennies.csv").write_text(PENNIES)
    (tmp_path / "chicken.csv").write_text("0,7\n2,6\n---\n0,2\n7,6\n")

    def call(*arguments, code=0, **env):
        done = taut("game", *arguments, cwd=tmp_path, **env)
        assert done.returncode == code, done.stderr
        return done.stdout if code in (0, 3) else done.stderr

    call.folder = tmp_path
    return call


def test_a_game_is_solved_and_shown(run):
    said = run("pennies.csv", "--temperature", "0.5")
    for part in (
        "zero-sum game, 2 × 2",
        "row pays column",
        "duality gap",
        "as asked for",
        "heads",
        "(pays)",
    ):
        assert part in said
    assert "certified for temperatures above 1.125" in " ".join(said.split())
    assert "\x1b" not in said  # no colours into a pipe


def test_json_is_the_answer(run):
    answer = json.loads(run("pennies.csv", "--temperature", "0.5", "--json"))
    assert answer["converged"] is True
    assert sum(answer["x"]) == pytest.approx(1)
    assert answer["row_names"] == ["heads", "tails"]
    assert answer["certificate"]["factor"]["theorem"] == ["dsfp-tv"]
    assert (answer["zero_sum"], answer["row_player"], answer["temperature"]) == (True, "pays", 0.5)
    nash = json.loads(run("pennies.csv", "--nash", "--json"))
    assert nash["x"][0] == pytest.approx(2.5 / 4.5, abs=1e-5)
    logit = json.loads(run("chicken.csv", "--temperature", "0.5", "--json"))
    assert logit["x"][0] == pytest.approx(0.400537600868)


def test_general_sum_and_nash_are_shown(run):
    assert "there may be others" in run("chicken.csv", "--temperature", "0.5")
    assert "the only equilibrium" in run("chicken.csv", "--temperature", "5")
    assert "annealing to temperature" in run("pennies.csv", "--nash")


def test_what_is_not_reached_is_said(run):
    said = run(
        "pennies.csv", "--temperature", "0.1", "--method", "dsfp", "--max-iterations", "20", code=3
    )
    assert "NOT CONVERGED" in said
    assert "budget" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pennies.csv"], "give --temperature"),
        (
            ["pennies.csv", "--temperature", "0"],
            "--temperature must be > 0, got 0.0; --nash lowers",
        ),
        (["pennies.csv", "--temperature", "1", "--nash"], "one of --nash and --temperature"),
        (["none.csv", "--temperature", "1"], "there is no file none.csv"),
        (["bad.csv", "--temperature", "1"], "bad.csv, line 2, column 2: 'x' is not a number"),
        (["chicken.csv", "--nash"], "the game is not zero-sum"),
        (["chicken.csv", "--temperature", "1", "--method", "dsfp"], "belong to zero-sum games"),
        (["pennies.csv", "--temperature", "1", "--plot", "a.bmp"], "must end in .svg, .png, .html"),
        (["pennies.csv", "--temperature", "1", "--plot", "no/a.svg"], "there is no folder"),
        (["pennies.csv", "--temperature", "1", "--method", "magic"], "method must be one of"),
        (["pennies.csv", "--nash", "--method", "dsfp"], "belong to --temperature"),
        (["pennies.csv", "--temperature", "1", "--plot", "folder.svg"], "is a directory"),
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
        run("pennies.csv", "--temperature", "1.3", "--method", "dsfp", "--plot", f"gap{ending}")
        data = (run.folder / f"gap{ending}").read_bytes()
        assert data.lstrip().startswith(start)
        if ending != ".png":
            assert b"dsfp-tv" in data
        if ending == ".html":
            assert b'src="http' not in data  # works offline
    assert sorted(p.name for p in run.folder.glob(".*")) == []


def test_a_reader_may_leave_early_and_terminals_may_be_plain(run):
    command = [sys.executable, "-m", "taut", "game", "pennies.csv", "--temperature", "0.5"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=run.folder
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    done = subprocess.run(command, capture_output=True, text=True, cwd=run.folder,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "zero-sum game" in done.stdout


def test_names_are_text_only(run):
    (run.folder / "names.csv").write_text('"[red]a[/red]",b\n1,2\n3,4\n')
    assert "[red]a[/red]" in run("names.csv", "--temperature", "1")


def test_many_strategies_are_shortened(run):
    np.save(run.folder / "large.npy", np.random.default_rng(0).normal(size=(30, 40)))
    said = run("large.npy", "--temperature", "0.5", "--show", "5")
    assert "… and 25 more" in said
    assert "… and 35 more" in said


STOPPED = """
import os, signal, sys, threading, time
def stop():
    while "taut.games.solve" not in sys.modules:
        time.sleep(0.1)
    time.sleep(2)  # and the solver is at work
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=stop, daemon=True).start()
from taut.cli import main
main()
"""


def test_ctrl_c_gives_the_best_so_far(tmp_path):
    (tmp_path / "pennies.csv").write_text(PENNIES)
    options = [
        "--temperature",
        "0.1",
        "--method",
        "dsfp",
        "--max-iterations",
        "1000000000",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, "game", "pennies.csv", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert answer["status"] == "stopped"
    assert answer["iterations"] > 0
