"""Run the notebooks and store their outputs: python docs/write_notebooks.py.

Cells run one after the other in this process, as Jupyter runs them; Jupyter is not needed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parent / "notebooks"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of this run."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _run_cell("".join(cell["source"]), names)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(tree, "<cell>", "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        outputs.append({
            "output_type": "execute_result", "execution_count": None, "metadata": {},
            "data": _shown(value),
        })  # fmt: skip
    return outputs


def _shown(value: Any) -> dict[str, str]:
    """An object as notebooks show it."""
    data = {"text/plain": repr(value)[:2000]}
    if svg := getattr(value, "svg", None):
        data["image/svg+xml"] = svg
    elif hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_()
    return data


def main() -> None:
    before = os.getcwd()
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                found = run(json.loads(file.read_text(encoding="utf-8")))
            finally:
                os.chdir(before)
        text = json.dumps(found, indent=1, ensure_ascii=False)
        file.write_text(f"{text}\n", encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()
