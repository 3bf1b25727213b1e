"""The two sides of a constant while it is being computed, before it becomes a Bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut._base.array import Array, eps_of, namespace
from taut._base.array_rounding import round_down, round_up
from taut._base.bound import Bound, Kind, Rounding
from taut._base.bound_text import LIPSCHITZ
from taut._base.domain import Domain, Everywhere
from taut._base.norm import Norm

ALL = Everywhere(name="all x in R^n").given("n >= 2")


class Sides(NamedTuple):
    """Certified sides, the estimate between them where the constant is exact, and the theorem."""

    lower: Array
    upper: Array
    estimate: Array  # None where the constant is not exact
    kind: Kind
    theorem: tuple[str, ...]
    rounding: Rounding
    checked: bool = False  # whether 0 <= lower <= estimate <= upper was seen to hold

    def bound(self, norm: Norm, domain: Domain) -> Bound:
        """Say in which norm and where the constant holds."""
        if self.checked:
            return Bound._with_checked_sides(
                self.lower,
                self.upper,
                self.kind,
                norm,
                domain,
                self.theorem,
                self.estimate,
                LIPSCHITZ,
                self.rounding,
            )
        return Bound(
            self.lower,
            self.upper,
            self.kind,
            norm,
            domain,
            self.theorem,
            self.estimate,
            rounding=self.rounding,
        )


def exact_sides(
    value: Array, relative: Array, absolute: float, ceiling: float, theorem: tuple[str, ...]
) -> Sides:
    """Round a computed exact constant outward; it is known never to exceed ``ceiling``."""
    upper = at_most(round_up(value, relative, absolute), ceiling)
    lower = round_down(value, relative, absolute)
    return Sides(lower, upper, at_most(value, ceiling), "exact", theorem, rounding="proved")


def at_most(x: Array, ceiling: float) -> Array:
    """Elementwise minimum with a number, which must not become smaller by rounding to x's dtype."""
    xp = namespace(x)
    return xp.minimum(x, xp.full_like(x, rounded_up(ceiling, x)))


def rounded_up(value: float, x: Array) -> float:
    """The smallest number of x's precision that is not below ``value``; maybe infinite."""
    if eps_of(x) == 2.0**-52:
        return value
    near = float(np.float32(value))
    return near if near >= value else float(np.nextafter(np.float32(value), np.float32(np.inf)))
