"""By night: what pip builds and installs for users, each extra in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import taut
from tests.helpers.places import ROOT, needs_repository

pytestmark = [pytest.mark.slow, needs_repository]

# What must work with an extra and nothing else; the last line of the output has these words.
USES = {
    "": ("import taut; print(taut.local_lipschitz([0.0, 0.0]))", "exact 0.5"),
    "cli": ("from taut.cli import app; app(['env'])", "sacrebleu is not installed"),
    "report": ("import jinja2; print('there')", "there"),
    "torch": (
        "import torch; from taut import audit\n"
        "layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()\n"
        "print(len(audit.run(layer, [torch.randn(1, 5, 8)]).heads), 'heads')",
        "2 heads",
    ),
    "plot": ("import altair, vl_convert; print('there')", "there"),
    "audit": (
        "from taut.cli import app; app(['audit', '--limit', '2', '--show', '1'])",
        "report: taut-audit",
    ),
    "all": ("from taut.cli import app; app(['reproduce', 'example-1', '--quick'])", "page:"),
    "jax": (
        "import jax.numpy as jnp, taut; print(taut.local_lipschitz(jnp.array([0.0, 0.0])))",
        "exact 0.5",
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The archives as `python -m build` makes them, the wheel from the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_archives_are_whole(built):
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name.startswith(f"taut-{taut.__version__}-py3-none-any")
    names = zipfile.ZipFile(wheel).namelist()
    assert "taut/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if not name.startswith(("taut/", "taut-"))]
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(tracked) <= inside


@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone_is_enough(extra, built, tmp_path):
    (wheel,) = built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wanted],
        capture_output=True, text=True,
    )  # fmt: skip
    if re.search(r"Could not find a version|Connection|No matching distribution", installed.stderr):
        pytest.skip("there is no package index")
    assert installed.returncode == 0, installed.stderr
    code, words = USES[extra]
    outside = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SOURCE_DATE_EPOCH")}
    done = subprocess.run(
        [python, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={**outside, "NUMBA_CACHE_DIR": str(tmp_path / "numba"), "COLUMNS": "200"},
    )  # fmt: skip
    assert words in done.stdout, done.stderr
    assert "site-packages" in _place(python, tmp_path)


def _place(python: Path, folder: Path) -> str:
    code = "import taut; print(taut.__file__)"
    given = {"cwd": folder, "capture_output": True, "text": True, "check": True}
    return subprocess.run([python, "-I", "-c", code], **given).stdout


def test_every_extra_of_users_is_tried():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    developers = {"test", "peers", "bench", "docs", "lint"}
    inside = {"data", "hf", "rl", "seq2seq"}  # parts of audit and all
    assert set(USES) - {""} == set(project["optional-dependencies"]) - developers - inside
