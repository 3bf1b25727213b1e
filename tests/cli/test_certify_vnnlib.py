"""`taut certify network.onnx --vnnlib property.vnnlib` as a user runs it."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("typer")
from onnx import helper  # noqa: E402
from torch import nn  # noqa: E402

from tests.helpers.command_line import taut  # noqa: E402
from tests.helpers.onnx_files import by_hand, exported  # noqa: E402

PROPERTY = """
(declare-const X_0 Real) (declare-const X_1 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 -0.5)) (assert (<= X_0 0.5)) (assert (>= X_1 -0.5)) (assert (<= X_1 0.5))
(assert (>= Y_0 {limit}))
"""


@pytest.fixture
def folder(tmp_path):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(2))
        net[0].bias.zero_()
    exported(net, torch.zeros(1, 2), tmp_path / "net.onnx")
    for name, limit in (("safe", 0.75), ("unsafe", 0.25)):
        (tmp_path / f"{name}.vnnlib").write_text(PROPERTY.format(limit=limit))
    return tmp_path


def test_verdicts_and_exit_codes(folder):
    done = taut("certify", "net.onnx", "--vnnlib", "safe.vnnlib", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("proved (unsat): no input of the property has an unsafe output")
    assert "rounding proved" in done.stdout
    done = taut(
        "certify", "net.onnx", "--vnnlib", "unsafe.vnnlib", "--counterexample", "c.txt", cwd=folder
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("refuted (sat)")
    assert (folder / "c.txt").read_text().startswith("((X_0 0.")
    text = PROPERTY.format(limit=0.5).replace("(>= Y_0", "(> Y_0")  # holds, but rounding touches it
    (folder / "close.vnnlib").write_text(text)
    done = taut("certify", "net.onnx", "--vnnlib", "close.vnnlib", "--time-limit", 5, cwd=folder)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("open (unknown)")


def test_json_of_compressed_files(folder):
    for name in ("net.onnx", "unsafe.vnnlib"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    done = taut(
        "certify", "net.onnx.gz", "--vnnlib", "unsafe.vnnlib.gz", "--json", cwd=folder
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    record = json.loads(done.stdout, parse_constant=pytest.fail)  # no Infinity, no NaN
    assert (record["verdict"], record["vnnlib"]) == ("refuted", "sat")
    assert 0.25 <= record["input"][0] <= 0.5
    assert record["output"][0] == record["input"][0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["net.onnx", "--vnnlib", "none.vnnlib"], "none.vnnlib"),
        (["none.onnx", "--vnnlib", "safe.vnnlib"], "none.onnx"),
        (["net.onnx", "--vnnlib", "safe.vnnlib", "--inputs", "x.npy"], "give no others"),
        (["model", "--vnnlib", "safe.vnnlib"], "takes an ONNX file"),
        (["net.onnx", "--vnnlib", "classes.vnnlib"], "3 outputs, Y_0 to Y_2, and the network"),
        (["net.onnx", "--vnnlib", "safe.vnnlib", "--time-limit", "0"], "--time-limit"),
        (["wave.onnx", "--vnnlib", "safe.vnnlib"], "Sin at node 'wave'"),
        (["net.onnx", "--inputs", "x.npy", "--counterexample", "c"], "need --vnnlib"),
    ],
)
def test_wrong_input_is_one_clear_line(arguments, words, folder):
    (folder / "classes.vnnlib").write_text("(declare-const Y_2 Real)" + PROPERTY.format(limit=1))
    node = helper.make_node("Sin", ["x"], ["y"], "wave")
    by_hand(folder / "wave.onnx", [node], ([1, 1, 2], [1, 1, 2]))
    done = taut("certify", *arguments, cwd=folder)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_onnx_file_at_inputs(folder):
    np.save(folder / "x.npy", np.array([[0.3, 0.1]], dtype=np.float32))
    done = taut("certify", "net.onnx", "--inputs", "x.npy", "--classify", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Norm of the derivative: 1")
    assert "certified radius" in done.stdout
