"""The experiments of Nair 2025 at small scale: its claims, and what a run leaves behind."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("altair")

from taut.cli.experiment_results import reproduce
from taut.reproduce import EXPERIMENTS, Claim, Curve, Options, Plot, Result, ResultTable, run
from taut.reproduce.page import page, write
from taut.reproduce.result import never_above
from tests.helpers.places import RESULTS, SHARED

QUICK = Options(quick=True)


@cache
def quick(name: str) -> Result:
    """A run that several tests look at."""
    return run(name, QUICK)


def agreement(result: Result) -> dict[str, bool | None]:
    return {claim.statement: claim.agrees for claim in result.claims}


def test_example_1_prints_the_corrected_digit():
    printed, corrected, below = run("example-1", QUICK).claims
    assert not printed.agrees
    assert corrected.agrees
    assert corrected.found == "0.4999999950444"
    assert below.agrees


def test_example_2_has_the_corrected_value():
    printed, corrected, limit = run("example-2", QUICK).claims
    assert not printed.agrees
    assert corrected.agrees
    assert limit.agrees


@pytest.mark.parametrize("name", ["proposition-2", "corollary-1", "theorem-3", "theorem-2"])
def test_theorems(name):
    result = quick(name)
    wrong = [statement for statement, agrees in agreement(result).items() if agrees is False]
    # The one statement that is wrong: a factor without its damping.
    assert [s for s in wrong if "every α" not in s] == []
    assert len(wrong) == (name == "theorem-3")
    assert result.tables


def test_contraction_is_measured_in_each_norm():
    """A factor that is one per cent too small would be exceeded somewhere."""
    found = quick("theorem-3").claims[0]
    assert 0.5 < float(found.found) <= 1


def test_plain_iteration_fails_below_every_certificate():
    thresholds = quick("theorem-3").tables[0]
    for _, fails, above, below, *certified in thresholds.rows:
        assert all(float(fails) <= float(tau) for tau in certified)
        assert float(above) < 1e-6 < 1e-3 < float(below)


def test_policies(tmp_path):
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("Box2D")
    options = QUICK._replace(limit=400, epsilons=(1e-3, 1e-2, 0.1), folder=tmp_path)
    result = run("figure-4", options)
    assert all(agreement(result).values()), result.claims
    cart = next(claim for claim in result.claims if "CartPole" in claim.statement)
    largest, average = (float(part.split()[1]) for part in cart.found.split(", "))
    assert 1.99 < largest <= 2.0
    assert 1.0 < average < 1.5  # of one direction: what the paper calls its number


def test_language_models(tmp_path):
    """The embedded models: never above ½, and near it along worst directions."""
    pytest.importorskip("transformers")
    result = run("figure-3", QUICK._replace(limit=4, folder=tmp_path))
    assert all(agreement(result).values()) or not result.claims[-1].agrees, result.claims
    for row in result.tables[0].rows:
        # On all rows: random directions stay below the largest constant, and the sample's worst.
        largest = float(row[4].split()[-1])
        assert float(row[2]) <= largest + 1e-4 <= 0.5001
        assert float(row[3]) <= largest + 1e-4
    assert max(float(row[3]) for row in result.tables[0].rows) >= 0.499
    shares = [float(row[5]) for row in result.tables[0].rows if row[1] == "2"]
    assert all(0.05 < share < 0.95 for share in shares)  # random directions fall short
    again = run("figure-3", QUICK._replace(limit=4, folder=tmp_path))  # from the record
    assert again.tables == result.tables


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared folder with images is not there")
def test_images(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("efficientnet_lite_pytorch", reason="the classifier is not installed")
    images = str(SHARED / "data" / "images" / "cifar100")
    options = QUICK._replace(data=(images,), limit=3, folder=tmp_path)
    result = run("figure-2", options._replace(models=("efficientnet-lite0",)))
    assert all(agreement(result).values()), result.claims
    random, local = (float(claim.found.split()[1]) for claim in result.claims)
    assert random < 0.5 * local


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared folder with images is not there")
def test_vision_models(tmp_path):
    pytest.importorskip("transformers")
    images = str(SHARED / "data" / "images" / "cifar100")
    options = QUICK._replace(data=(images,), limit=2, folder=tmp_path)
    model = str(SHARED / "models" / "dinov2-small")
    result = run("figure-1", options._replace(models=(model,)))
    assert all(agreement(result).values()), result.claims


def test_prompts_of_hellaswag(tmp_path):
    import bz2

    from taut.reproduce.data_sets import read

    lines = [f"context {i}\n{i % 4}\na\nb\nc\nd" for i in range(5)]
    file = tmp_path / "hellaswag.txt.bz2"
    file.write_bytes(bz2.compress("\n".join(lines).encode()))
    assert read(str(file), 3).items == ["context 0", "context 1", "context 2"]
    plain = tmp_path / "other.bz2"
    plain.write_bytes(bz2.compress(b"one\n\ntwo"))
    assert read(str(plain), 3).items == ["one", "two"]
    (tmp_path / "broken.bz2").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot read"):
        read(str(tmp_path / "broken.bz2"), 3)


def test_numbers_that_are_no_options():
    for wrong in (
        {"epsilons": (-1.0,)}, {"epsilons": (math.nan,)}, {"norms": (0.5,)}, {"norms": (math.nan,)},
        {"scales": (0.0,)}, {"norms": ()},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="must be"):
            run("example-1", QUICK._replace(**wrong))
    with pytest.raises(ValueError, match="limit must be at least 1"):
        QUICK._replace(limit=0).size(1, 1)


def test_numbers_below_their_limit_are_not_rounded_up_to_it():
    from taut.reproduce.row_ratios import below, bracket

    assert below(0.49999999) == "0.5 − 1.0e-08"
    assert below(0.4999) == "0.499900"
    assert below(0.5) == "0.500000"
    assert bracket(0.25, 0.25000001) == "0.2500"
    assert bracket(0.25, 0.26) == "0.2500 to 0.2600"


def test_means_are_of_single_directions():
    """For two equal logits a random direction in l2 reaches |cos| of the worst: 2/π in the mean."""
    from taut.reproduce.row_ratios import measure

    found = measure(np.zeros((4000, 2)), [2.0], [1e-3], trials=4)
    assert abs(found.mean_random[0, 0] / 0.5 - 2 / math.pi) < 0.02
    assert found.lower[0] == pytest.approx(0.5)


def test_nothing_passes_that_is_not_a_number(monkeypatch):
    """NaN in some rows of softmax, or in a factor, is no agreement."""
    import taut
    from taut.reproduce.experiments import corollary_1, theorem_3

    assert not never_above([], 0.5)
    real = taut.softmax

    def broken(x, **options):
        found = np.array(real(x, **options))
        found[::7] = math.nan
        return found

    monkeypatch.setattr(corollary_1.taut, "softmax", broken)
    assert not any(agreement(run("corollary-1", QUICK)).values())
    monkeypatch.undo()
    slope = theorem_3._slope
    monkeypatch.setattr(theorem_3, "_slope", lambda payoffs, tau: slope(payoffs, tau) * math.nan)
    monkeypatch.setattr(theorem_3, "_radius", lambda payoffs, tau: 0.5)
    monkeypatch.setattr(theorem_3, "_moves", lambda slope, source: np.eye(len(slope)))
    assert not any(agreement(run("theorem-3", QUICK)).values())


def test_factors_that_are_too_small_are_seen(monkeypatch):
    from taut.reproduce.experiments import theorem_3

    reached = theorem_3._reached
    monkeypatch.setattr(theorem_3, "_reached", lambda *args: 1.1 * reached(*args))
    assert not run("theorem-3", QUICK).claims[0].agrees


def test_attainment_rests_on_lower_sides(monkeypatch):
    from taut.reproduce.experiments import proposition_2

    assert quick("proposition-2").claims[-1].agrees
    real = proposition_2.taut.local_lipschitz
    monkeypatch.setattr(
        proposition_2.taut, "local_lipschitz",
        lambda x, p: real(x, p=p)._replace(lower=0 * np.asarray(real(x, p=p).lower)),
    )  # fmt: skip
    assert not run("proposition-2", QUICK).claims[-1].agrees
    monkeypatch.undo()
    only_sums = run("proposition-2", QUICK._replace(norms=(1.0,)))
    assert [claim.agrees for claim in only_sums.claims] == [True, None, True, None]


def test_ascent_for_more_tokens_begins_where_that_for_fewer_ended():
    rows = quick("theorem-2").tables[0].rows
    reached = [float(row[3]) for row in rows]
    assert reached == sorted(reached)


def test_wrong_kinds_and_twins(tmp_path):
    pytest.importorskip("transformers")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "text.txt").write_text("Some words.\n")
    files = tuple(str(tmp_path / folder / "text.txt") for folder in ("a", "b"))
    from taut.models.embedded import embedded_models

    model = (str(embedded_models()["embedded-plain"]),)
    options = QUICK._replace(folder=tmp_path, models=model, data=files, limit=1)
    with pytest.raises(ValueError, match="needs images"):
        run("figure-1", options)
    with pytest.raises(ValueError, match="two models or data sets are called plain on text"):
        run("figure-3", options)


def test_unused_options_are_said(tmp_path, capsys):
    reproduce("theorem-3", QUICK._replace(folder=tmp_path, norms=(3.0,)), "taut reproduce")
    assert "theorem-3 does not use --p" in capsys.readouterr().err


def test_files(tmp_path):
    result = run("example-2", QUICK)
    files = write(result, tmp_path, "taut reproduce example-2")
    assert [file.name for file in files] == [
        f"example-2{end}" for end in (".json", ".md", ".svg", ".png")
    ]
    record = json.loads(files[0].read_text(encoding="utf-8"))
    assert record["command"] == "taut reproduce example-2"
    assert record["settings"]["norms"][-1] == "inf"
    assert record["claims"][1]["agrees"] is True
    assert "| ½ − δ |" in files[1].read_text(encoding="utf-8")
    assert files[2].read_text().startswith("<svg")
    assert files[3].read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write(result, tmp_path / "file", "")


def test_a_claim_that_fails_is_seen():
    """A number above its bound, or none, is not said to agree."""
    assert not never_above([0.5, math.nan], 0.5)
    assert not never_above([0.500001], 0.5)
    text = page(Result("x", "X", {}, [Claim("a|b", "1", "2", False)]), "taut reproduce x")
    assert "| a\\|b | 1 | 2 | **no** |" in text


def test_without_models_and_data(tmp_path, monkeypatch, capsys):
    """What cannot be had is said, and does not stop the others."""
    with pytest.raises(ValueError, match="no experiment 'figure-9'"):
        run("figure-9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    options = QUICK._replace(folder=tmp_path)
    with pytest.raises(ValueError, match=r"there is no folder .*none"):
        run("figure-3", options._replace(models=(str(tmp_path / "none"),), data=("text",)))
    with pytest.raises(ValueError, match="figure-1=a instead of a"):
        reproduce("all", options._replace(models=("a",)), "taut reproduce all")

    def unreachable(options):
        raise OSError("the Hub cannot be reached")

    monkeypatch.setattr("taut.reproduce.experiments.figure_1.run", unreachable)
    only = {name: EXPERIMENTS[name] for name in ("figure-1", "example-1")}
    monkeypatch.setattr("taut.cli.experiment_results.EXPERIMENTS", only)
    assert not reproduce("all", options, "taut reproduce all")
    said = capsys.readouterr().out
    assert "figure-1: not run:" in said
    assert (tmp_path / "example-1.md").exists()


def test_all_gives_each_figure_its_own_models(tmp_path, monkeypatch):
    seen = {}

    def figure(options):
        seen["figure-1"] = options
        return Result("figure-1", "Figure", {})

    monkeypatch.setattr("taut.reproduce.experiments.figure_1.run", figure)
    only = {name: EXPERIMENTS[name] for name in ("figure-1", "example-1")}
    monkeypatch.setattr("taut.cli.experiment_results.EXPERIMENTS", only)
    options = QUICK._replace(
        folder=tmp_path, models=("figure-1=a=b",), data=("figure-1=c", "figure-1=d")
    )
    assert reproduce("all", options, "taut reproduce all --model figure-1=a=b")
    assert seen["figure-1"].models == ("a=b",)
    assert seen["figure-1"].data == ("c", "d")


def test_what_was_made_is_kept(tmp_path):
    """Arrays are made once for a key, and again if their file was cut short."""
    from taut.reproduce.kept_arrays import kept

    calls = []

    def make():
        calls.append(1)
        return {"x": np.arange(3.0)}

    for key in ({"seed": 0}, {"seed": 0}, {"seed": 1}):
        assert kept(tmp_path, key, make)["x"].tolist() == [0, 1, 2]
    assert len(calls) == 2
    file = next(tmp_path.glob("*.npz"))
    file.write_bytes(file.read_bytes()[:40])
    for key in ({"seed": 0}, {"seed": 1}):
        kept(tmp_path, key, make)
    assert len(calls) == 3
    assert not list(tmp_path.glob("*.part"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        kept(tmp_path / "file", {}, make)


def test_what_other_versions_made_is_made_anew(tmp_path, monkeypatch):
    from taut.reproduce import kept_arrays as _kept

    calls = []

    def make():
        calls.append(1)
        return {"x": np.arange(3.0)}

    for version in ("1", "1", "2", None):
        versions = {"stable-baselines3": version}
        monkeypatch.setattr(_kept, "_versions", lambda versions=versions: versions)
        _kept.kept(tmp_path, {"seed": 0}, make)
    assert len(calls) == 3
    monkeypatch.undo()
    assert _kept._versions()["numpy"] == np.__version__


def test_what_a_model_makes_of_images_decides_what_is_kept(tmp_path, monkeypatch):
    """A preprocessor that was edited gives other logits."""
    torch = pytest.importorskip("torch")
    Image = pytest.importorskip("PIL.Image")
    from taut.models.samples import read_samples
    from taut.reproduce.experiments import figure_2

    class Classifier(torch.nn.Linear):
        def forward(self, pixel_values):
            return pixel_values.mean((-1, -2))

    classifier = Classifier(1, 1)
    model = tmp_path / "model"
    model.mkdir()
    monkeypatch.setattr("taut.models.load", lambda name, dtype: classifier)
    Image.new("RGB", (8, 8), (50, 20, 30)).save(tmp_path / "0.png")
    samples = read_samples([str(tmp_path / "0.png")], limit=1)
    found = []
    for mean in (0.0, 1.0):
        settings = {"image_mean": [mean] * 3, "image_std": [1.0] * 3}
        (model / "preprocessor_config.json").write_text(json.dumps(settings))
        found.append(figure_2._logits(str(model), samples, tmp_path / "kept"))
    np.testing.assert_allclose(found[0] - found[1], 1.0, rtol=1e-5)


def test_a_classifier_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    """Logits of blocks of images that were seen are not computed again; changed images are."""
    torch = pytest.importorskip("torch")
    from PIL import Image

    from taut.reproduce.experiments import figure_2

    calls = []

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(3))

        def forward(self, pixels):
            calls.append(1)
            return pixels.mean((-1, -2)) @ self.weight

    classifier = Classifier()
    monkeypatch.setattr(figure_2, "packaged", lambda: classifier)
    monkeypatch.setattr(figure_2, "BLOCK", 2)
    images = tmp_path / "images"
    images.mkdir()
    for i in range(5):
        Image.new("RGB", (8, 8), (50 * i, 20, 30)).save(images / f"{i}.png")
    options = QUICK._replace(models=("efficientnet-lite0",), data=(str(images),), folder=tmp_path)
    first = run("figure-2", options)
    assert len(calls) == 5
    assert run("figure-2", options).tables == first.tables
    assert len(calls) == 5
    Image.new("RGB", (8, 8), (1, 2, 3)).save(images / "0.png")
    run("figure-2", options)
    assert len(calls) == 7  # the block of the changed image
    monkeypatch.setattr(figure_2, "MEAN", (0.1, 0.1, 0.1))
    run("figure-2", options)
    assert len(calls) == 12  # the images become something else


def test_the_command(tmp_path):
    env = {**os.environ, "COLUMNS": "150"}

    def taut(*words):
        command = [sys.executable, "-m", "taut", "reproduce", *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False
        )

    assert all(name in taut().stdout for name in EXPERIMENTS)
    done = taut("example-1", "--p", "1,2")
    assert done.returncode == 0, done.stderr
    assert "0.4999999950444" in done.stdout
    assert (tmp_path / "taut-reproduce" / "example-1.json").exists()
    wrong = taut("nothing")
    assert wrong.returncode == 2
    assert "No such command 'nothing'" in wrong.stderr


# The pages of other results are written by hand, or by a script of their own.
KEPT = sorted(
    file.stem
    for file in RESULTS.glob("*.md")
    if (record := file.with_suffix(".json")).exists()
    and "claims" in json.loads(record.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize("name", KEPT)
def test_pages_say_what_their_records_say(name):
    """A kept page is the page of its record: neither is edited by itself."""
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    result = Result(
        record["name"], record["title"], record["settings"],
        [Claim(**claim) for claim in record["claims"]],
        [ResultTable(**table) for table in record["tables"]],
        [Plot(**{**plot, "curves": [Curve(**c) for c in plot["curves"]]})
         for plot in record["plots"]],
        record["remarks"],
        record.get("compared", "paper"),
    )  # fmt: skip
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert page(result, record["command"]) == text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_was_found_is_kept(name):
    """The records and pages of the full runs; what disagrees is a misprint that is known."""
    folder = RESULTS
    record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert record["command"].startswith(f"taut reproduce {name}")
    assert "--quick" not in record["command"]
    wrong = [claim["statement"] for claim in record["claims"] if claim["agrees"] is False]
    known = dict.fromkeys(("example-1", "example-2", "theorem-3", "newhouse-2025"), 1)
    known["real-models"] = 2  # θ ≈ 1 does not persist in two of the models
    assert len(wrong) == known.get(name, 0)
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert record["command"] in text
    assert f"# {record['title']}" in text
    if record["plots"]:
        assert (folder / f"{name}.svg").exists()
    assert f"results/{name}.md" in (folder.parent / "reproduce.md").read_text(encoding="utf-8")


def test_the_factor_of_theorem_3_holds_for_the_sums():
    """‖J_y Aᵀ J_x A‖_p ≤ ‖A‖_p²/4 for p = 1 and ∞, at any pair of strategies."""
    source = np.random.default_rng(0)
    most = dict.fromkeys((1, math.inf), 0.0)
    for trial in range(12000):
        n, m = source.integers(2, 6, 2)
        payoffs = source.standard_normal((n, m)) * 10 ** source.uniform(-1, 1, (n, 1))
        if trial % 2:
            payoffs = np.sign(payoffs) * (source.random((n, m)) < 0.5)
        if not payoffs.any():
            continue
        x, y = (source.dirichlet(np.full(k, 0.5)) for k in (n, m))
        jx, jy = (np.diag(s) - np.outer(s, s) for s in (x, y))
        for p in most:
            slope = np.linalg.norm(jy @ payoffs.T @ jx @ payoffs, p)
            most[p] = max(most[p], 4 * slope / np.linalg.norm(payoffs, p) ** 2)
    assert all(0.8 < share <= 1 + 1e-12 for share in most.values()), most
