"""Everything that decides a run, and nothing else: the same recipe gives the same numbers."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from taut._base.checks import whole_number
from taut.reproduce.seq2seq.methods import Method
from taut.reproduce.seq2seq.models import FAMILIES, SIZES
from taut.reproduce.seq2seq.subwords import FEWEST, KINDS

PRECISIONS = ("no", "fp16", "bf16")
LEAST = {"seed": 0, "vocabulary": FEWEST, "longest": 4, "steps": 1, "pieces": 1, "accumulate": 1,
         "warmup": 1, "every": 1, "patience": 1}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """How a model is made and trained.

    Attributes
    ----------
    method
        How it is constrained.
    seed
        Seed of the weights, the order of the data and dropout.
    size, family
        Size and family of the model.
    tokens, vocabulary, longest
        Kind of pieces, how many there are, and how many a text has at most.
    steps
        Largest number of steps of the optimiser.
    pieces, accumulate
        Pieces in a batch of one process, and batches in a step.
    rate, warmup
        The largest learning rate, and the steps up to it; it falls with the root of the step.
    smoothing
        Label smoothing.
    clip
        Largest norm of the gradient.
    every, patience
        Steps between two validations, and how many without an improvement end the run.
    precision
        ``"no"``, ``"fp16"`` or ``"bf16"``, as accelerate names it.
    """

    method: Method = field(default_factory=lambda: Method("base"))
    seed: int = 0
    size: str = "tiny"
    family: str = "marian"
    tokens: str = "bpe"
    vocabulary: int = 4000
    longest: int = 64
    steps: int = 2000
    pieces: int = 1500
    accumulate: int = 1
    rate: float = 2e-3
    warmup: int = 400
    smoothing: float = 0.1
    clip: float = 1.0
    every: int = 250
    patience: int = 5
    precision: str = "no"

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise TypeError(f"method must be a Method, such as Method.parse({str(self.method)!r})")
        for name, least in LEAST.items():
            whole_number(getattr(self, name), name=name, least=least)
        for name in ("rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be from 0 to below 1, got {self.smoothing}")
        for name, known in (("size", SIZES), ("family", FAMILIES), ("tokens", KINDS),
                            ("precision", PRECISIONS)):  # fmt: skip
            if getattr(self, name) not in known:
                listed = f"{', '.join(known)}; got {getattr(self, name)!r}"
                raise ValueError(f"{name} must be one of {listed}")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {**asdict(self), "method": str(self.method)}

    def mark(self, data: str, processes: int = 1) -> str:
        """A short name for this recipe on this data (its checksum), in so many processes."""
        several = [processes] if processes > 1 else []  # their batches are others
        told = json.dumps([self.to_dict(), data, *several], sort_keys=True)
        return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()
