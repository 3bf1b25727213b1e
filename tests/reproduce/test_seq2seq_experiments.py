"""The experiments of Zhang et al. 2021: comparing runs, and everything from data to a page."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
pytest.importorskip("altair")

from typer.testing import CliRunner

from taut.cli.app import app
from taut.reproduce.page import page, write
from taut.reproduce.seq2seq.compared_runs import ComparedRuns, spread
from taut.reproduce.seq2seq.page import dialogue_result, translation_result
from taut.reproduce.seq2seq.printed_numbers import MEASURES as NINE
from taut.reproduce.seq2seq.printed_numbers import printed_bleu, printed_measures
from taut.reproduce.seq2seq.task import Task
from tests.helpers.places import RESULTS, SHARED

MEASURES = {"sigma_max": 2.0, "AM": 9.0, "LA": 50.0, "LF": 60.0, "constant_mean": 0.1,
            "constant_largest": 0.4}  # fmt: skip


def facts(method, seed, bleu, *, loss=2.0, **more):
    example = ["a", "b", f"{method} {seed}"]
    score = {
        "bleu": bleu, "signature": "nrefs:1", "examples": [example],
        "how": dict.fromkeys(NINE, "so"), **dict.fromkeys(NINE, bleu), "different": 12.5,
    }  # fmt: skip
    return {
        "recipe": {"method": method, "seed": seed, "steps": 10}, "corpus": "some",
        "pairs": [3, 2, 1], "checksum": "12ab", "cut": 0.01,
        "languages": ["de", "en"], "parameters": 7, "steps": 10, "seconds": 5.0,
        "step_seconds": 0.5, "valid_loss": loss, "best_step": 10,
        "gradient_largest": 3.0, "gradient_median": 1.0, "score_largest": 9.0,
        "curve": [[5, 3.0], [10, loss]], "before": dict(MEASURES), "after": dict(MEASURES),
        "scores": {"test": score}, **more,
    }  # fmt: skip


def bleu(one):
    return one["scores"]["test"]["bleu"]


RUNS = [
    *(facts("base", seed, 20.0 + seed) for seed in range(3)),
    *(facts("VAR-I, 1e-06", seed, 21.0 + seed + 0.1 * seed, loss=1.9) for seed in range(3)),
    *(facts("VAR-I, 1e-08", seed, 30.0, loss=2.5) for seed in range(3)),
    *(facts("VAR-II, 1e-06", seed, 19.0 + seed - 0.1 * seed) for seed in range(3)),
    *(facts("VAR-III, 1e-06", seed, 20.0 + 3 * (seed - 1) ** 2) for seed in range(3)),
]


def test_the_page_keeps_every_run_and_draws_every_seed():
    result = translation_result(RUNS)
    table = next(table for table in result.tables if table.title == "Every run")
    assert table.header[:3] == ["method", "seed", "BLEU, test"]
    assert [row[:3] for row in table.rows[2:4]] == [
        ["base", "2", "22.00"], ["VAR-I, 1e-06", "0", "21.00"],
    ]  # fmt: skip
    losses, by_strength, scattered = result.plots
    base, first, *_ = losses.curves  # colours by method, as in the other plots
    assert (base.name, base.y, base.dashed) == ("base", [0.0, 0.0], True)
    assert (first.name, first.dashed) == ("VAR-I", False)
    assert first.y == pytest.approx([0.0, -0.1])
    assert len(losses.curves) == 5
    seeds, means = (curve for curve in by_strength.curves if curve.name == "VAR-I")
    assert [seeds.points, means.points] == [True, False]
    assert sorted(seeds.y) == pytest.approx([1.0, 1.1, 1.2, 8.0, 9.0, 10.0])
    assert means.x == [1e-8, 1e-6]
    assert means.y == pytest.approx([9.0, 1.1])
    assert sum(len(curve.x) for curve in scattered.curves) == len(RUNS)


def test_differences_are_of_the_same_seeds():
    found = ComparedRuns(RUNS)
    change = found.difference("VAR-I, 1e-06", bleu)
    assert change.values == pytest.approx([1.0, 1.1, 1.2])
    # Student's t: mean 1.1, deviation 0.1, so t = 1.1/(0.1/√3) = 19.05 with 2 degrees of freedom;
    # there P(|T| > t) = 1 − t/√(t² + 2).
    t = 1.1 / (0.1 / math.sqrt(3))
    assert change.p == pytest.approx(1 - t / math.sqrt(t**2 + 2))
    assert str(change) == "+1.10 (+1.00 to +1.20), p = 0.003"
    assert math.isnan(ComparedRuns(RUNS[:1] + RUNS[3:4]).difference("VAR-I, 1e-06", bleu).p)
    assert spread([]) == "–"
    assert spread([1.0]) == "1.00"


def test_a_gain_is_seen_not_seen_or_undecided():
    claims = {claim.statement.split()[0]: claim for claim in translation_result(RUNS).claims}
    assert claims["VAR-I,"].agrees is True
    assert "1e-06" in claims["VAR-I,"].statement  # the best on validation, not on the test
    assert claims["VAR-I,"].paper == "34.68 → 34.87 on IWSLT'14"
    assert claims["VAR-I,"].found.startswith("21.00 → 22.10; +1.10")
    assert claims["VAR-II,"].agrees is False
    assert claims["VAR-III,"].agrees is None
    alone = translation_result([facts("base", 0, 20.0), facts("VAR-I, 1e-06", 0, 19.0)])
    assert alone.claims[0].agrees is None  # one seed decides nothing
    below = [facts("base", s, 20.0) for s in range(3)]
    below += [facts("VAR-I, 1e-06", s, 20.4 - s) for s in range(3)]
    result = translation_result(below)
    assert result.claims[0].found.endswith("-0.60 (-1.60 to +0.40), p = 0.41")
    assert result.claims[0].agrees is None  # nor is a loss seen
    said = "0 of 1 gains are seen here, and 0 losses: no gain has a p below 0.05."
    assert said in page(result, "")
    assert "1 of 3 gains are seen here, and 1 losses." in page(translation_result(RUNS), "")


def test_runs_that_broke_down_are_said(tmp_path):
    broken = {**{k: RUNS[4][k] for k in ("recipe", "corpus", "pairs", "languages", "parameters")},
              "failed": "the loss is nan at step 3"}  # fmt: skip
    result = translation_result([*RUNS[:4], broken, RUNS[5]])
    text = page(result, "taut reproduce translation")
    assert "Broke down: VAR-I, 1e-06, seed 1: the loss is nan at step 3." in text
    assert "+1.10 (+1.00 to +1.20)" in text  # of the two seeds that are left
    assert "| 2 of 3 |" in text
    files = write(result, tmp_path, "taut reproduce translation")
    assert files[0].name == "translation-some-de-en.json"
    assert files[-1].read_bytes().startswith(b"\x89PNG")


def test_characters_have_a_page_of_their_own_and_the_paper_s_other_table():
    runs = [{**run, "recipe": {**run["recipe"], "tokens": "characters"}} for run in RUNS]
    result = translation_result(runs)
    assert result.name == "translation-some-de-en-characters"
    assert result.title.startswith("Translation by characters after")
    assert {claim.paper for claim in result.claims if "VAR-III" in claim.statement} == {
        "27.59 → 28.02 on IWSLT'15"
    }


def test_survivors_show_no_gain():
    broken = {k: RUNS[5][k] for k in ("recipe", "corpus", "pairs", "languages", "parameters")}
    five = [facts("base", s, 20.0) for s in range(5)]
    five += [facts("VAR-I, 1e-06", s, 21.0 + 0.1 * s) for s in range(3)]
    five += [
        {**broken, "recipe": {"method": "VAR-I, 1e-06", "seed": s, "steps": 1}, "failed": "nan"}
        for s in (3, 4)
    ]
    claim = translation_result(five).claims[0]
    assert "p = 0.003" in claim.found
    assert claim.agrees is None
    with pytest.raises(ValueError, match="all runs broke down"):
        translation_result(five[-2:])


def test_dialogue_has_the_nine_measures(tmp_path):
    result = dialogue_result(RUNS)
    assert [row[0] for row in result.tables[0].rows] == [*NINE, "different replies"]
    assert result.tables[0].rows[-1][2] == "12.50 (12.50 to 12.50)"
    assert result.tables[0].rows[0][1] == "–"  # the paper has none for these
    assert result.tables[0].rows[0][-1] == "so"
    assert write(result, tmp_path, "")[0].name == "dialogue-some.json"


def test_numbers_of_the_paper():
    """Spot checks against its tables."""
    assert printed_bleu("en", "vi", "bpe").values["VAR-II"] == 30.51
    characters = printed_bleu("de", "en", "characters")
    assert characters == ("IWSLT'15", {"base": 27.59, "VAR-III": 28.02})
    assert printed_bleu("en", "de", "bpe") == ("WMT'16", {"base": 27.3, "VAR-III": 28.5})
    assert printed_bleu("de", "fr", "bpe").values == {}
    assert printed_measures("daily-dialog")["CIDEr"].values["VAR-III"] == 82.1
    assert printed_measures("persona-chat")["greedy matching"].values["base"] == 65.8
    assert printed_measures("other")["BLEU-1"].values == {}


def test_where_the_paper_has_no_gain_there_is_nothing_to_agree_with():
    """CIDEr of VAR-I on DailyDialog: 79.3 → 79.2 in Table 4."""
    named = [{**one, "corpus": "daily-dialog"} for one in RUNS[:6]]
    claims = {
        claim.statement.split(" gains in ")[1]: claim for claim in dialogue_result(named).claims
    }
    cider = claims["CIDEr, where the paper has no gain"]
    assert (cider.paper, cider.agrees) == ("79.3 → 79.2 on DailyDialog", None)
    assert claims["ROUGE-L"].agrees is True


def test_tasks():
    recipes = Task("catalogs", methods=("base", "cap=1"), seeds=2, recipe={"steps": 5}).recipes()
    assert [(str(r.method), r.seed) for r in recipes] == [
        ("base", 0), ("cap, 1", 0), ("base", 1), ("cap, 1", 1),
    ]  # fmt: skip
    assert {r.steps for r in recipes} == {5}
    for wrong, said in (
        ({"methods": ("cap=1",)}, "must include base"), ({"methods": ("base", "base")}, "twice"),
        ({"seeds": 0}, "at least 1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            Task("catalogs", **wrong).recipes()


def taut(*words, cwd, check=True):
    command = [sys.executable, "-m", "taut", "reproduce", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "150"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


SMALL = (
    "--size", "tiny", "--vocabulary", "300", "--steps", "24", "--every", "12", "--limit", "200",
    "--held-out", "50", "--pieces", "400", "--seeds", "1", "--longest", "24", "--warmup", "12",
)  # fmt: skip


def invoked(*words):
    done = CliRunner().invoke(app, ["reproduce", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_from_catalogs_to_a_page(tmp_path, monkeypatch):
    """200 real pairs: the loss falls, and BLEU is what the command of sacrebleu prints."""
    django = pytest.importorskip("django", reason="its catalogs are the data")
    monkeypatch.chdir(tmp_path)
    place = f"catalogs:{Path(django.__file__).parent}"
    words = ("translation", "--methods", "base,VAR-III=1e-6", "--data", place, *SMALL)
    assert invoked(*words).count("BLEU") >= 2
    folder = tmp_path / "taut-reproduce"
    record = json.loads((folder / "translation-catalogs-de-en.json").read_text("utf-8"))
    assert record["settings"]["pairs"] == [200, 50, 50]
    runs = list((folder / "runs").iterdir())
    for run in runs:
        found = json.loads((run / "facts.json").read_text("utf-8"))
        assert found["curve"][-1][1] < found["curve"][0][1]
        losses = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in losses if "loss" in line]
        assert losses[-1] < losses[0]
    command = [sys.executable, "-m", "sacrebleu", str(runs[0] / "references-test.txt"), "-i",
               str(runs[0] / "answers-test.txt"), "-b", "-w", "6"]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    bleu = json.loads((runs[0] / "facts.json").read_text("utf-8"))["scores"]["test"]["bleu"]
    assert float(said) == pytest.approx(bleu, abs=1e-6)
    assert "seed 0:" not in invoked(*words)  # nothing is run anew


@pytest.mark.slow
def test_two_runs_at_a_time(tmp_path):
    pytest.importorskip("django", reason="its catalogs are the data")
    words = ("translation", "--methods", "base,VAR-III=1e-6", *SMALL, "--jobs", "2")
    assert taut(*words, cwd=tmp_path).stdout.count("seed 0: test BLEU") == 2


def test_wrong_input_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (("translation", "--data", "nowhere"), "no data 'nowhere'"),
        (("translation", "--from", "xx", "--data", "catalogs:."), "no translations from or into"),
        (("translation", "--methods", "base,VAR-IV=1", "--data", "."), "no method 'VAR-IV'"),
        (("translation", "--methods", "base", "--data", "."), "needs train.de"),
        (("translation", "--methods", "base", "--tokens", "word", "--data", "."), "tokens must be"),
        (("translation", "--methods", "base", "--rate", "nan", "--data", "."), "rate must be"),
        (("translation", "--test", "x"), "only folders have test sets"),
        (
            ("translation", "--methods", "VAR-I=1", "--size", "huge", "--data", "pairs"),
            "methods must include base",
        ),
        (("translation", "--methods", "base", "--size", "huge", "--data", "pairs"), "size must be"),
        (("translation", "--methods", "base", "--jobs", "0", "--data", "pairs"), "jobs must be"),
        (("dialogue", "--data", "nowhere"), "no dialogues 'nowhere'"),
    ):  # fmt: skip
        (tmp_path / "pairs").mkdir(exist_ok=True)
        for language in ("de", "en"):
            text = "".join(f"{language} word {'x' * i}\n" for i in range(40))
            (tmp_path / "pairs" / f"train.{language}").write_text(text)
        done = CliRunner().invoke(app, ["reproduce", *words])
        assert done.exit_code == 2, done.output
        assert said in done.output


DATA = SHARED / "data"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared folder with dialogues is not there")
def test_dialogues(tmp_path):
    done = taut("dialogue", "--data", str(DATA / "dailydialog"), "--methods", "base", *SMALL,
                cwd=tmp_path)  # fmt: skip
    assert "BLEU-1" in done.stdout
    record = json.loads((tmp_path / "taut-reproduce" / "dialogue-daily-dialog.json").read_text())
    assert len(record["tables"][0]["rows"]) == 10  # nine measures, and how many replies differ


KEPT = (
    "translation-multi30k-de-en", "translation-multi30k-en-de", "translation-catalogs-ro-en",
    "translation-catalogs-en-vi", "dialogue-daily-dialog",
    "translation-multi30k-de-en-characters", "translation-catalogs-ro-en-characters",
)  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_is_kept(name):
    """Record, page and figure: at least three seeds of each method, and means of their scores."""
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert record["command"] in text
    assert "<svg" in (RESULTS / f"{name}.svg").read_text(encoding="utf-8")[:200]
    tables = {table["title"]: table for table in record["tables"]}
    assert len(tables["Examples, first seed"]["rows"]) >= 3 * 4
    every = tables["Every run"]
    methods = list(dict.fromkeys(row[0] for row in every["rows"]))
    for method in methods:
        seeds = [row[1] for row in every["rows"] if row[0] == method]
        assert seeds == [str(i) for i in range(max(3, len(seeds)))]
    if "BLEU" in tables:
        for row in tables["BLEU"]["rows"]:
            values = [float(run[2]) for run in every["rows"] if run[0] == row[0]]
            assert float(row[2].split()[0]) == pytest.approx(mean(values), abs=0.011)


def test_what_was_found_is_told_as_it_is():
    """The rows of the table in docs/seq2seq.md have the numbers of the pages they link to."""
    told = (RESULTS.parent / "seq2seq.md").read_text(encoding="utf-8")
    rows = [line for line in told.splitlines() if "](results/" in line and line.startswith("|")]
    linked = [re.search(r"\(results/(.*?)\.md\)", row)[1] for row in rows]
    assert set(linked) == set(KEPT)
    for name, row in zip(linked, rows, strict=True):
        text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
        for cell in row.strip("|").split("|")[2:]:
            assert cell.strip() in ("–", "") or cell.strip() in text, (name, cell)
