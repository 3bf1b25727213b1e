"""Verdict: what is known of a property of a network on a set of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from taut._base.domain import Domain


@dataclass(frozen=True)
class Verdict:
    """What :func:`verify` found.

    Attributes
    ----------
    verdict
        ``"proved"``: the property holds for every input of the set. ``"refuted"``: it does not for
        ``example``. ``"open"``: neither was found in time.
    lower
        Lower bound of the worst function, less what it must exceed, over the whole set; above 0 if
        proved, −inf if nothing is known.
    example
        An input of the set, (1, ...), at which the network as executed violates the property; None
        unless refuted.
    predicted
        The class that the property is about; None if functions were given.
    clauses, proved_clauses
        How many parts the property has, and how many of them are proved.
    bounded, waiting
        How many sign patterns of ReLUs were bounded so far, and how many are left to split.
    seconds
        Time that was spent, with that of runs which were resumed.
    norm, domain, theorem
        What the verdict is about, and the theorems that a proof rests on.
    rounding
        Whether the rounding of a proof is ``"proved"`` itself, or ``"estimated"``, as in half
        precision.
    executed
        Whether a proof is about the network as executed, or in exact arithmetic.
    note
        Why an open verdict cannot become better by more time; empty otherwise.
    """

    verdict: Literal["proved", "refuted", "open"]
    lower: float
    example: torch.Tensor | None
    predicted: int | None
    clauses: int
    proved_clauses: int
    bounded: int
    waiting: int
    seconds: float
    norm: float
    domain: Domain
    theorem: tuple[str, ...]
    rounding: Literal["proved", "estimated"]
    executed: bool
    note: str = ""

    def __str__(self) -> str:
        what = "the property" if self.predicted is None else f"class {self.predicted}"
        words = {
            "proved": f"proved: {what} holds everywhere",
            "refuted": f"refuted: an input violates {what}",
            "open": f"open: {self.proved_clauses} of {self.clauses} parts of {what} are proved",
        }[self.verdict]
        told = f"{words}, {self.domain}, in l{self.norm:g}"
        if self.verdict != "refuted":
            told += f"; lower bound {self.lower:.4g} after {self.bounded} sign patterns"
        told += f" ({self.seconds:.1f} s)"
        return told if not self.note else f"{told}. {self.note}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found["example"] = None if self.example is None else self.example.tolist()
        return {**found, "domain": str(self.domain), "theorem": list(self.theorem)}
