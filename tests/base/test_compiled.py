"""Compiled code on disk: never that of other sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from taut._base import compiled as _compile

OUTER = """
from taut._base.compiled import compiled
from taut.inner import FACTOR, plus

def _outer(x):
    return plus(x * FACTOR)

print(compiled(_outer)(1.0))
"""
INNER = """
from numba import njit
from taut.deep.constants import SHIFT

FACTOR = 3.0

@njit
def plus(x):
    return x + SHIFT
"""


@pytest.fixture
def package(tmp_path):
    """A package named taut of three modules beside ours, and a function that runs it."""
    root = tmp_path / "taut"
    (root / "deep").mkdir(parents=True)
    (root / "_base").mkdir()
    shutil.copy(Path(_compile.__file__), root / "_base")
    for name, text in {
        "__init__.py": "", "_base/__init__.py": "",
        "outer.py": OUTER, "inner.py": INNER, "deep/__init__.py": "",
        "deep/constants.py": "SHIFT = 1.0\n",
    }.items():  # fmt: skip
        (root / name).write_text(text)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> float:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "taut.outer"], env=env, capture_output=True, text=True
        )
        assert not done.returncode, done.stderr
        return float(done.stdout)

    return root, run


def change(file: Path, old: str, new: str) -> None:
    """As an installer that keeps times would: size and time stay as they were."""
    before = file.stat()
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def kept(root: Path) -> set[str]:
    return {file.name for file in (root.parent / "cache").rglob("*.nbc")}


def test_changes_in_what_a_compiled_function_calls_are_seen(package):
    root, run = package
    assert run() == 4.0
    first = kept(root)
    assert len(first) == 1
    assert run() == 4.0
    assert kept(root) == first  # loaded, not compiled again
    change(root / "inner.py", "x + SHIFT", "x - SHIFT")
    assert run() == 2.0
    change(root / "deep" / "constants.py", "1.0", "2.0")
    assert run() == 1.0
    change(root / "inner.py", "FACTOR = 3.0", "FACTOR = 5.0")
    assert run() == 3.0


KERNEL = "_softmax/kernel/driver.py"


def test_the_sources_of_each_kernel(monkeypatch, tmp_path):
    root = tmp_path / "taut"
    shutil.copytree(_compile.ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(_compile, "ROOT", root)
    monkeypatch.setattr(_compile, "__file__", str(root / "_base/compiled.py"))
    digest = _compile.digest.__wrapped__
    for outer, parts in {
        KERNEL: [f"_softmax/kernel/{n}.py" for n in ("arithmetic", "along_rows", "side_by_side")],
        "_softmax/proved_p/search.py": [
            f"_softmax/proved_p/{n}.py" for n in ("dual", "scan", "suprema")
        ],
        "games/_solvers/newton_compiled.py": ["games/_solvers/temperature_path.py"],
        "games/_solvers/interaction.py": ["_base/compiled_operations.py"],
        "models/row_statistics.py": ["_base/compiled.py"],
    }.items():
        for part in [outer, *parts]:
            before = digest(root / outer)
            (root / part).write_text((root / part).read_text() + "\n# changed\n")
            assert digest(root / outer) != before
    before = digest(root / KERNEL)
    (root / "models" / "load.py").write_text("")
    assert digest(root / KERNEL) == before


def test_without_sources_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code = compile("def double(x):\n    return 2 * x\n", str(tmp_path / "gone.py"), "exec")
    space: dict[str, object] = {"__name__": "gone"}
    exec(code, space)
    assert _compile.compiled(space["double"])(2.0) == 4.0
    assert not list(tmp_path.rglob("*.nb?"))
