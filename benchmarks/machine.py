"""The machine that a table was made on."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

import numpy as np
import torch

import taut


def machine() -> str:
    """Date, processor and versions."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return (
        f"{datetime.date.today()}, {model}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, torch {torch.__version__}, "
        f"taut {taut.__version__}"
    )
