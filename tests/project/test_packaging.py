"""The shape of the project: what is public, who imports whom, what an import costs, the wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import taut
from tests.helpers.places import ROOT


def test_version_is_said_once():
    """Packages are built with `taut.__version__`; what people read has to name the same."""
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in pyproject
    assert re.search(r'\[tool.hatch.version\]\npath = "src/taut/__init__.py"', pyproject)
    cited = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited == [taut.__version__]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert newest[1] == taut.__version__


def test_import_is_light():
    code = (
        "import sys, taut; "
        "heavy = {'torch', 'jax', 'transformers', 'numba', 'scipy'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_dependency_is_justified():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = re.findall(r'"([A-Za-z0-9_-]+)>=', (ROOT / "pyproject.toml").read_text())
    missing = [name for name in listed if f"`{name}`" not in text]
    assert not missing


def test_every_dependency_is_pinned():
    pins = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    listed = re.findall(r'"([A-Za-z0-9_-]+)>=', (ROOT / "pyproject.toml").read_text())
    assert {name.lower().replace("_", "-") for name in listed} <= pins


def test_wheel_works_away_from_the_source(tmp_path):
    """Build the wheel, install it in a fresh environment, and use it from another folder."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("taut-*.whl")
    venv.create(tmp_path / "env", with_pip=False)
    # Borrow the dependencies of this environment, but not the editable install of taut.
    site = next((tmp_path / "env" / "lib").glob("python*")) / "site-packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    import numpy

    borrowed = Path(numpy.__file__).parents[1]
    code = (
        f"import sys; sys.path.append({str(borrowed)!r}); import taut, pathlib; "
        "assert 'env' in pathlib.Path(taut.__file__).parts, taut.__file__; "
        "assert pathlib.Path(taut.__file__).with_name('py.typed').exists(); "
        "assert len(taut.explore.page()) > 3_000_000; "
        "print(taut.local_lipschitz([0.0, 0.0]))"
    )
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-I", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "exact 0.5" in done.stdout


def test_import_leaves_numpys_corners_alone():
    code = (
        "import sys, taut; "
        "heavy = {'numpy.f2py', 'numpy.testing', 'dataclasses'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
