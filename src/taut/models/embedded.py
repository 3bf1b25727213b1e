"""The small language models that ship with taut, and a text to audit them on.

``experiments/train_embedded.py`` in the repository trains them on plays by Shakespeare; the text is
from the part that was held out.
"""

from __future__ import annotations

import json
from pathlib import Path

from taut.models.samples import Samples

FOLDER = Path(__file__).parent / "_embedded"


def embedded_models() -> dict[str, Path]:
    """Name and folder of each model: one trained plainly, one under constraints."""
    return {f"embedded-{name}": FOLDER / name for name in ("plain", "constrained")}


def embedded_data(limit: int) -> Samples:
    """Speeches that the models were not trained on."""
    text = json.loads((FOLDER / "sample.json").read_text(encoding="utf-8"))
    return Samples("text", text[:limit], "held-out speeches from tiny Shakespeare")
