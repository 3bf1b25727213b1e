"""The exact constants of every row: compiled where possible, portable elsewhere, differentiable."""

from __future__ import annotations

from taut._array import Array, check_logits, differentiated, namespace
from taut._derivatives import attach
from taut._secular import Constants, constants


def exact_constants(x: Array, scale: float) -> Constants:
    """λ‖M‖₁ and λ‖M‖₂ of every row of logits (last axis), scale ≥ 0; NaN and +inf are refused."""
    xp = namespace(x)
    check_logits(xp, xp.max(x, axis=-1), name="x")
    found = constants(x, scale)
    if differentiated(x):
        one, two = attach(found.one, found.two, x, scale)
        found = found._replace(one=one, two=two)
    return found
