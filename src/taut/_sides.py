"""The two sides of a constant while it is being computed, before it becomes a Bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut._array import Array, eps_of, namespace
from taut._bound import Bound, Kind, Norm, round_down, round_up


class Sides(NamedTuple):
    """Certified sides, the estimate between them where the constant is exact, and the theorem."""

    lower: Array
    upper: Array
    estimate: Array | None
    kind: Kind
    theorem: tuple[str, ...]

    def bound(self, norm: Norm, domain: str) -> Bound:
        """Say in which norm and where the constant holds."""
        return Bound(self.lower, self.upper, self.kind, norm, domain, self.theorem, self.estimate)


def exact_sides(
    value: Array, relative: Array, absolute: float, ceiling: float, theorem: tuple[str, ...]
) -> Sides:
    """Round a computed exact constant outward; it is known never to exceed ``ceiling``."""
    upper = at_most(round_up(value, relative, absolute), ceiling)
    lower = round_down(value, relative, absolute)
    return Sides(lower, upper, at_most(value, ceiling), "exact", theorem)


def at_most(x: Array, ceiling: float) -> Array:
    """Elementwise minimum with a number, which must not become smaller by rounding to x's dtype."""
    if eps_of(x) == 2.0**-23 and float(np.float32(ceiling)) < ceiling:
        ceiling = float(np.nextafter(np.float32(ceiling), np.float32(np.inf)))
    xp = namespace(x)
    return xp.minimum(x, xp.full_like(x, ceiling))
