"""Reference values: the heads of models that taut was tried on, to say where another one stands.

``experiments/measure_reference.py`` in the repository measures them. They are few models on little
data: they give a number its place, and are not a standard that a model should meet.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent / "reference.json"


class ReferenceModel(NamedTuple):
    """A model whose heads were measured.

    Attributes
    ----------
    name
        Name of the model.
    kind
        ``"language model"``, ``"text encoder"``, ``"image encoder"``, or ``"random"`` for one that
        was not trained.
    data
        What it was measured on.
    rows
        Number of rows of attention.
    mean
        Mean l2 constant of every head, from the smallest to the largest.
    evenness, top
        Mean evenness and mean largest weight of every head, sorted in the same way.
    """

    name: str
    kind: str
    data: str
    rows: int
    mean: tuple[float, ...]
    evenness: tuple[float, ...]
    top: tuple[float, ...]

    @property
    def trained(self) -> bool:
        """Whether it was trained."""
        return self.kind != "random"


@cache
def reference_models() -> tuple[ReferenceModel, ...]:
    """The models that other audits can be compared with.

    Examples
    --------
    >>> models = reference_models()
    >>> any(model.trained for model in models), all(max(m.mean) <= 0.5 for m in models)
    (True, True)
    """
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["models"]
    return tuple(
        ReferenceModel(*(_frozen(each[name]) for name in ReferenceModel._fields)) for each in found
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def share_below(value: float) -> float:
    """The share of all heads of trained reference models whose mean l2 constant is smaller."""
    known = _known()
    return bisect_left(known, value) / len(known)


def reference_size() -> tuple[int, int]:
    """How many heads, of how many trained models, there are."""
    return len(_known()), sum(model.trained for model in reference_models())


@cache
def _known() -> list[float]:
    return sorted(mean for model in reference_models() if model.trained for mean in model.mean)
