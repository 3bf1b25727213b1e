"""The small language models that ship with taut, and the text that they are audited on.

They are trained by ``experiments/train_embedded.py`` in the repository on plays by Shakespeare; the
text here is from the part that was held out.
"""

from __future__ import annotations

import json
from pathlib import Path

from taut.audit._data import Samples

FOLDER = Path(__file__).parent / "embedded"


def embedded_models() -> dict[str, Path]:
    """Name and folder of each model: one as it is, one trained under constraints."""
    return {f"embedded-{name}": FOLDER / name for name in ("plain", "constrained")}


def embedded_data(limit: int) -> Samples:
    """Speeches that the models have not seen."""
    text = json.loads((FOLDER / "sample.json").read_text(encoding="utf-8"))
    return Samples("text", text[:limit], "held-out speeches from tiny Shakespeare")
