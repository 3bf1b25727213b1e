"""Files and functions stay small enough to be read at once."""

from __future__ import annotations

import ast
import shutil
import subprocess

import pytest

from tests.helpers.places import ROOT, SOURCE, needs_repository
from tests.helpers.source_tree import modules

LINES_OF_A_FILE = 260
LINES_OF_A_FUNCTION = 60
# Files that are longer, with their lengths, which may only fall. An entry that is not needed fails.
LONG_FILES: dict[str, int] = {}


def test_files_are_short():
    lengths = {
        str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in SOURCE.rglob("*.py")
    }
    long = {name: length for name, length in lengths.items() if length > LINES_OF_A_FILE}
    grown = {name: length for name, length in long.items() if length > LONG_FILES.get(name, 0)}
    assert not grown, "split these files"
    assert not set(LONG_FILES) - set(long), "these are short now: take them off the list"


def lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short():
    long = {
        f"{module}.{node.name}"
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines(node) > LINES_OF_A_FUNCTION
    }
    assert not long, "split these functions"


@needs_repository
def test_functions_are_simple():
    """No function has a cyclomatic complexity above 15, and none is excepted."""
    ruff = shutil.which("ruff") or shutil.which("ruff", path=ROOT / ".venv" / "bin")
    if ruff is None:
        pytest.skip("ruff is not installed: pip install -e .[lint]")
    done = subprocess.run(
        [ruff, "check", "--isolated", "--ignore-noqa", "--select=C901", "--output-format=concise",
         "--config=lint.mccabe.max-complexity=15", SOURCE],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
