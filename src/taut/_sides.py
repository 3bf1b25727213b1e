"""The two sides of a constant while it is being computed, before it becomes a Bound."""

from __future__ import annotations

from typing import NamedTuple

from taut._array import Array, namespace
from taut._bound import Kind, round_down, round_up


class Sides(NamedTuple):
    """Certified sides, the estimate between them where the constant is exact, and the theorem."""

    lower: Array
    upper: Array
    estimate: Array | None
    kind: Kind
    theorem: tuple[str, ...]


def exact_sides(
    value: Array, relative: Array, absolute: float, ceiling: float, theorem: tuple[str, ...]
) -> Sides:
    """Round a computed exact constant outward; it is known never to exceed ``ceiling``."""
    upper = at_most(round_up(value, relative, absolute), ceiling)
    return Sides(round_down(value, relative, absolute), upper, value, "exact", theorem)


def at_most(x: Array, ceiling: float) -> Array:
    """Elementwise minimum with a number that is itself an upper bound."""
    xp = namespace(x)
    return xp.minimum(x, xp.full_like(x, ceiling))
