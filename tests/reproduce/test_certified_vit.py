"""certified-vit: digits from their files, a short training, claims from its numbers."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from taut.reproduce import Options, run
from taut.reproduce.experiments import certified_vit
from taut.reproduce.lipschitz import image_run
from taut.reproduce.lipschitz.digits import read_digits, shifted
from taut.reproduce.lipschitz.image_run import ImageRun, judged, train_classifier


def idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, dtype=">u4").tobytes()
    return b"\0\0\x08" + bytes([array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Bright squares at ten places, one for each class, on noise."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 10, 1300)
    images = draw.integers(0, 60, (1300, 28, 28))
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 4)
        image[8 * row + 2 : 8 * row + 8, 7 * column : 7 * column + 6] = 250
    path = tmp_path_factory.mktemp("mnist")
    (path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (path / "t10k-labels-idx1-ubyte").write_bytes(idx(labels))
    return path


def test_digits_are_split_once_and_for_all(folder):
    digits = read_digits(folder)
    assert digits.train.shape == (300, 1, 28, 28)
    assert digits.held_out.shape == (1000, 1, 28, 28)
    assert 0.9 < float(digits.train.max()) <= 1
    assert torch.equal(read_digits(folder).held_out_labels, digits.held_out_labels)
    moved = shifted(digits.train, torch.Generator().manual_seed(0))
    assert moved.shape == digits.train.shape
    assert float((moved != digits.train).float().mean()) > 0.5
    assert torch.equal(
        moved[:, :, 1:-1, 1:-1].amax(dim=(1, 2, 3)), digits.train.amax(dim=(1, 2, 3))
    )


def test_a_short_training_is_certified_and_attacked(folder):
    digits = read_digits(folder)
    digits = digits._replace(
        held_out=digits.held_out[:40], held_out_labels=digits.held_out_labels[:40]
    )
    seen = []
    record = train_classifier(
        ImageRun("taut", 1, 3.5, 4, 0), digits, 4, lambda *told: seen.append(told)
    )
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4]
    assert record["accuracy"] > 0.9
    assert 0 < record["bound"] <= 1.00001
    assert record["mean_radius"] > 0.3
    assert record["broken"] == 0
    assert record["certified_radius_of_attacked"] <= record["attack_radius_of_correct"]
    assert record["mean_radius_in_float32"] < record["mean_radius"]
    assert record["certified"]["1.0"] <= record["certified"]["0.1"] <= record["accuracy"]


def test_the_quick_experiment_makes_its_page_and_resumes(folder, tmp_path, monkeypatch):
    options = Options(quick=True, data=(str(folder),), folder=tmp_path, limit=2)
    monkeypatch.setattr(image_run, "SIZES", {**image_run.SIZES, "width": 16, "hidden": 16})
    methods = {certified_vit.OURS: ("taut", 1, 2.5, 8), "not there": ("another", 1, 1.0, 0)}
    monkeypatch.setattr(certified_vit, "METHODS", methods)
    true = image_run.train_classifier
    monkeypatch.setattr(image_run, "train_classifier", lambda run, *rest: _missing(run, rest, true))
    result = run("certified-vit", options)
    assert result.claims[2].agrees is True  # nothing was broken
    assert [row[0] for row in result.tables[0].rows] == [certified_vit.OURS]
    assert result.remarks[-1] == "Not measured: not there (no such package)."
    assert result.settings["attacked"] == 2
    assert [curve.name for curve in result.plots[0].curves] == [certified_vit.OURS]
    monkeypatch.setattr(image_run, "train_classifier", lambda run, *rest: _missing(run, rest, None))
    assert run("certified-vit", options).tables == result.tables


def _missing(run, rest, train):
    if run.method == "another":
        raise ImportError("no such package")
    return train(run, *rest)


@pytest.mark.slow
def test_a_radius_that_is_too_large_is_broken(folder, monkeypatch):
    """The attack can fail: with a tenth of the constant, radii are ten times too large."""
    from taut.control import LipschitzTransformer, WeightLimits

    torch.manual_seed(0)
    model = LipschitzTransformer.of_images(
        10, image=(1, 28, 28), patch=7, width=16, layers=1, heads=2, target=1.0, sharpness=0.05
    )
    WeightLimits(model, method="orthogonal").start().stop()
    digits = read_digits(folder)
    digits = digits._replace(
        held_out=digits.held_out[:20], held_out_labels=digits.held_out_labels[:20]
    )
    assert judged(model, digits, 20)["broken"] == 0
    true = LipschitzTransformer.margin_constants
    monkeypatch.setattr(LipschitzTransformer, "margin_constants", lambda *given: 0.1 * true(*given))
    assert judged(model, digits, 20)["broken"] > 0


@pytest.mark.parametrize(
    ("data", "told"),
    [((), "needs MNIST's test images"), (("nowhere",), "holds no t10k-images-idx3-ubyte")],
)
def test_missing_data_is_explained(data, told):
    with pytest.raises((ValueError, OSError), match=told):
        run("certified-vit", Options(data=data))


def test_a_file_that_is_cut_short_is_told(folder, tmp_path):
    whole = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(whole[:-5])
    with pytest.raises(ValueError, match="is cut short"):
        read_digits(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"PK\3\4")
    with pytest.raises(ValueError, match="not a file of bytes in the IDX format"):
        read_digits(tmp_path)
