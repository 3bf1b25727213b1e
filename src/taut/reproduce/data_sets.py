"""The data sets of Nair 2025, and how they are read and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

IMAGES = ("hf:uoft-cs/cifar100::test", "hf:ILSVRC/imagenet-1k::validation")
PROMPTS = ("hf:Rowan/hellaswag::validation", "hf:ybisk/piqa::validation")
COLUMNS = {"hellaswag": "ctx", "piqa": "goal"}


def read(name: str, count: int) -> Any:
    """Samples by name: what ``taut audit`` reads, and the paper's columns of its data sets."""
    from taut.models import read_samples

    column = next((c for key, c in COLUMNS.items() if key in name.lower()), None)
    return read_samples([name], count, column if name.startswith("hf:") else None)


def short(name: str) -> str:
    """A short name of a model, for tables and figures."""
    return name.split(":")[1].split("/")[-1] if name.startswith("hf:") else Path(name).stem
