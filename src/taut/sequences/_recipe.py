"""Everything that decides a run, and nothing else: the same recipe gives the same numbers."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from taut.sequences._ways import Way


@dataclass(frozen=True)
class Recipe:
    """How a model is made and trained.

    Attributes
    ----------
    way
        How it is constrained.
    seed
        Of the weights, the order of the data and dropout.
    size, family
        Of the model.
    tokens, vocabulary, longest
        Kind of pieces, how many there are, and how many a text has at most.
    steps
        Of the optimiser, at most.
    pieces, accumulate
        Pieces in a batch of one process, and batches in a step.
    rate, warmup
        The largest learning rate, and the steps up to it; it falls with the root of the step.
    smoothing
        Of labels.
    clip
        Largest norm of the gradient.
    every, patience
        Steps between two validations, and how many without an improvement end the run.
    precision
        ``"no"``, ``"fp16"`` or ``"bf16"``, as accelerate names it.
    """

    way: Way = field(default_factory=lambda: Way("base"))
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
        for name in ("steps", "pieces", "accumulate", "warmup", "every", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.longest < 4:
            raise ValueError(f"longest must be at least 4, got {self.longest}")
        if not (0 < self.rate < math.inf and self.clip > 0 and 0 <= self.smoothing < 1):
            raise ValueError("rate and clip must be above 0, smoothing from 0 to below 1")
        if self.precision not in ("no", "fp16", "bf16"):
            raise ValueError(f"precision must be no, fp16 or bf16, got {self.precision!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {**asdict(self), "way": str(self.way)}

    def mark(self, data: str, processes: int = 1) -> str:
        """A short name for this recipe on this data (its checksum), in so many processes."""
        several = [processes] if processes > 1 else []  # their batches are others
        told = json.dumps([self.to_dict(), data, *several], sort_keys=True)
        return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()
