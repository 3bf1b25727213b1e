"""Ways to train: as it is, with S4's penalties, and with the other constraints of taut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taut import control

VARIANTS = ("VAR-I", "VAR-II", "VAR-III")
# What stands beside S4: its number is a strength, the cap of singular values, nothing.
OTHERS = {"local": 1.0, "cap": 2.0, "cosine": None}
LIMIT = 0.1  # of local constants, above which the penalty begins


@dataclass(frozen=True)
class Way:
    """How a model is constrained: a name and, where there is one, its number."""

    name: str
    number: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ("base", *VARIANTS, *OTHERS):
            known = ", ".join(("base", *VARIANTS, *OTHERS))
            raise ValueError(f"no way {self.name!r} to train; there are {known}")
        if self.name in ("base", "cosine"):
            if self.number is not None:
                raise ValueError(f"{self.name} takes no number, got {self.number!r}")
        elif self.number is None:
            raise ValueError(f"{self.name} needs a number: {self.name}=1e-6")
        elif not 0 < self.number < math.inf:
            raise ValueError(f"the number of {self.name} must be above 0, got {self.number!r}")

    def __str__(self) -> str:
        if self.number is None:
            return self.name
        short = f"{self.number:g}"  # unless that is another number
        return f"{self.name}, {short if float(short) == self.number else repr(self.number)}"

    @classmethod
    def parse(cls, text: str) -> Way:
        """From the words ``base``, ``VAR-III=1e-6``, ``cap=2``, ``local=1`` or ``cosine``."""
        name, given, number = text.strip().partition("=")
        if not given:
            return cls(name, OTHERS.get(name))
        try:
            value = float(number)
        except ValueError:
            raise ValueError(f"{text!r}: {number!r} is not a number") from None
        return cls(name, value)


def watch(
    model: Any, seed: int = 0, strength: float = 0.0, parts: str | Sequence[str] = "VAR-III"
) -> Any:
    """S4's penalties on self-attention and feed-forward networks; cross-attention is left alone.

    S4 speaks of the affinity matrix of self-attention, which is square, and of its maps.
    """
    blocks = [b for b in control.find_blocks(model) if not b.path.endswith("encoder_attn")]
    return control.constrain(model, parts, strength=strength, blocks=blocks, seed=seed)


def prepared(model: Any, way: Way) -> None:
    """Change the model itself, before its optimiser is made."""
    if way.name == "cosine":
        control.swap_attention(model, "cosine")


def constrained(model: Any, optimizer: Any, way: Way, seed: int) -> list[Any]:
    """Constrain a model that is prepared; penalties to add to the loss, the rest is attached."""
    if way.name == "base" or way.number is None:
        return []
    if way.name in VARIANTS:
        return [watch(model, seed, way.number, way.name)]
    if way.name == "local":
        return [control.LocalConstant(model, limit=LIMIT, strength=way.number, seed=seed)]
    control.Projection(model, cap=way.number).apply().attach(optimizer)
    return []
