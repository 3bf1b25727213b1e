"""Methods of training: none, the penalties of Zhang et al. 2021, or other constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taut import control

VARIANTS = ("VAR-I", "VAR-II", "VAR-III")
# Methods that the paper does not have: the default strength, cap of singular values, or nothing.
OTHERS = {"local": 1.0, "cap": 2.0, "cosine": None}
LIMIT = 0.1  # of local constants, above which the penalty begins


@dataclass(frozen=True)
class Method:
    """How a model is constrained: a name and, where there is one, its number."""

    name: str
    number: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ("base", *VARIANTS, *OTHERS):
            known = ", ".join(("base", *VARIANTS, *OTHERS))
            raise ValueError(f"no method {self.name!r} to train; there are {known}")
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
    def parse(cls, text: str) -> Method:
        """Parse ``base``, ``VAR-III=1e-6``, ``cap=2``, ``local=1`` or ``cosine``."""
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
) -> control.Orthogonality:
    """The paper's penalties on self-attention and feed-forward networks, without cross-attention.

    The paper speaks of the affinity matrix of self-attention, which is square, and of its maps.
    """
    blocks = [b for b in control.find_blocks(model) if not b.path.endswith("encoder_attn")]
    return control.Orthogonality(model, parts, strength=strength, blocks=blocks, seed=seed).start()


def prepared(model: Any, method: Method) -> None:
    """Change the model itself, before its optimiser is made."""
    if method.name == "cosine":
        control.swap_attention(model, "cosine")


def constrained(model: Any, optimizer: Any, method: Method, seed: int) -> list[control.Constraint]:
    """Constrain a model that is prepared; the constraints, which are running."""
    if method.name == "base" or method.number is None:
        return []
    if method.name in VARIANTS:
        return [watch(model, seed, method.number, method.name)]
    if method.name == "local":
        local = control.LocalConstant(model, limit=LIMIT, strength=method.number, seed=seed)
        return [local.start(optimizer)]
    return [control.Projection(model, limit=method.number).start(optimizer)]
