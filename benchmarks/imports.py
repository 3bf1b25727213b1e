"""What ``import taut`` costs beside ``import numpy``, each in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.timing import table


def _seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    # With compiled bytecode, as an installed package has it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    return float(done.stdout)


def import_cost() -> str:
    best = {"numpy": float("inf"), "taut": float("inf")}
    for _ in range(15):
        for module in best:
            best[module] = min(best[module], _seconds(module))
    rows = [
        [name, f"{seconds * 1e3:.0f}", f"{seconds / best['numpy']:.2f}"]
        for name, seconds in best.items()
    ]
    return table(["import", "ms", "times numpy"], rows)
