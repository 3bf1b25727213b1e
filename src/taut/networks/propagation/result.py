"""Propagation: bounds of linear functions of the output, and where their slack arises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from taut._base.bound import Bound

# What the kinds of operations are called in results.
NAMES = {
    "activation": "relaxation of activations",
    "attention": "relaxation of attention",
    "constant": "constant of the module",
    "norm": "relaxation of norm layers",
    "product": "relaxation of products",
}
LINEAR = "linear part: the derivative of the relaxation"
ROUNDING = "rounding"
TOGETHER = "ellipsoids: what all entries do together"
EARLIER = "all relaxations before it, entry by entry"


@dataclass(frozen=True)
class Slack:
    """A part of the distance between the value at an input and its bound.

    Attributes
    ----------
    module
        Where it arises; empty for the linear part and for rounding.
    what
        Which relaxation it is.
    amount
        How much it adds to either side, on average over the functions that were bounded.
    """

    module: str
    what: str
    amount: float


@dataclass(frozen=True)
class Propagation:
    """What :func:`propagate` found.

    Attributes
    ----------
    bound
        Both sides of every function, (inputs, functions): ``bound.lower`` and ``bound.upper``.
        Infinite where nothing could be shown within the radius or within the time.
    centre
        The value of every function at the inputs, as computed in float64.
    slack
        For each input, where the distance between value and bound comes from; largest first.
    constants
        Modules that have no affine bounds; they are bounded by their constants instead.
    executed
        Whether the bounds hold for the network as executed, or in exact arithmetic.
    """

    bound: Bound
    centre: Any
    slack: tuple[tuple[Slack, ...], ...]
    constants: tuple[str, ...]
    executed: bool

    def table(self, sample: int = 0) -> str:
        """The slack of one input as text."""
        parts = self.slack[sample]
        total = sum(part.amount for part in parts)
        if not total:
            return "no slack"
        lines = [
            f"{part.amount:10.4g}  {part.amount / total:6.1%}  "
            + (f"{part.module}: {part.what}" if part.module else part.what)
            for part in parts
        ]
        return "\n".join(["    amount   share  where it arises", *lines])

    def __str__(self) -> str:
        low, high = self.bound.lower, self.bound.upper
        many = "of the network as executed" if self.executed else "in exact arithmetic"
        lines = [
            f"{low.shape[1]} functions of the output at {low.shape[0]} inputs, "
            f"{self.bound.domain}, {many}",
            f"lowest value {low.min():.6g}, highest value {high.max():.6g}",
        ]
        if self.constants:
            lines.append(f"By their constants: {', '.join(self.constants)}")
        return "\n".join([*lines, self.table()])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON."""
        return {
            "lower": self.bound.lower.tolist(),
            "upper": self.bound.upper.tolist(),
            "centre": self.centre.tolist(),
            "norm": str(self.bound.norm),
            "domain": str(self.bound.domain),
            "theorem": list(self.bound.theorem),
            "rounding": self.bound.rounding,
            "executed": self.executed,
            "constants": list(self.constants),
            "slack": [[vars(part) for part in parts] for parts in self.slack],
        }
