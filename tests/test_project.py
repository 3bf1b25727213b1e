"""The shape of the project: what is public, who imports whom, what an import costs, the wheel."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import taut
from taut import theorems

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "taut"

# Each module may import only from modules that stand before it, and from its own package.
LAYERS = (
    "_array",
    "_integers",
    "_checks",
    "_exponents",
    "_files",
    "_json",
    "_npy",
    "_text",
    "_bars",
    "_optional",
    "_rounding",
    "_matrix_norm",
    "theorems",
    "_bound",
    "_compose",
    "_softmax",
    "_jacobian",
    "_secular",
    "_compile",
    "_kernel",
    "_derivatives",
    "_sides",
    "_exact",
    "_partition",
    "_mixed",
    "_certificate",
    "_pnorm",
    "_norms",
    "_box",
    "_lipschitz",
    "_steps",
    "_empirical",
    "attention",
    "games",
    "torch",
    "audit",
    "control",
    "sequences",
    "reproduce",
    "__init__",
    "_cli",
    "cli_audit",
    "cli_reproduce",
    "cli",
    "__main__",
)


def layer(path: Path) -> str:
    """The layer that a source file belongs to: its module, or the package it stands in."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = sorted(SOURCE.rglob("*.py"))


def imported_layers(path: Path) -> set[str]:
    """Layers of taut that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "taut":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("taut."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("taut.")}
    return found


def test_every_module_has_a_layer():
    assert {layer(path) for path in FILES} == set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downwards(path):
    own = layer(path)
    above = set(LAYERS[LAYERS.index(own) :]) - ({own} if path.parent != SOURCE else set())
    assert not imported_layers(path) & above


def test_only_one_door_to_array_api_compat():
    doors = [path.name for path in FILES if "array_api_compat" in path.read_text()]
    assert doors == ["_array.py"]


def test_all_is_what_is_public():
    assert sorted(taut.__all__) == taut.__all__
    public = {name for name in vars(taut) if not name.startswith("_")} - {"Any", "TYPE_CHECKING"}
    # Submodules show once somebody has imported them.
    assert (public - {"cli", "cli_audit", "cli_reproduce"}) | {
        "attention", "audit", "control", "games", "reproduce", "sequences", "torch",
    } == set(taut.__all__) - {"__version__"}  # fmt: skip
    for name in taut.__all__:
        assert getattr(taut, name).__doc__


def test_every_public_function_has_an_example():
    for name in taut.__all__:
        thing = getattr(taut, name)
        if inspect.isfunction(thing) and name not in {"add", "heads", "chain"}:
            assert ">>>" in thing.__doc__ or name in {"softmin", "log_softmax", "logsumexp"}, name


def test_module_names_are_declared():
    for name in dir(theorems):
        if name in theorems.__all__:
            assert getattr(theorems, name) is not None


def test_version_is_said_once():
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{taut.__version__}"' in pyproject
    assert f"version: {taut.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {taut.__version__}" in (ROOT / "CHANGELOG.md").read_text()


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
