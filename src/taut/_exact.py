"""The exact constants of every row: compiled where possible, portable elsewhere, differentiable."""

from __future__ import annotations

import numpy as np

from taut._array import (
    Array,
    check_logits,
    default_threads,
    differentiated,
    host_view,
    like,
    namespace,
    stop_gradient,
)
from taut._derivatives import attach
from taut._secular import Constants, constants

# The kernel works with scales that are normal numbers in float32, with room to spare.
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-30, 1e30


def exact_constants(x: Array, scale: float) -> Constants:
    """λ‖M‖₁ and λ‖M‖₂ of every row of logits (last axis), scale ≥ 0; NaN and +inf are refused."""
    host = host_view(x)
    if host is not None and _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        found = _compiled(x, host, scale)
    else:
        xp = namespace(x)
        check_logits(xp, xp.max(x, axis=-1), name="x")
        found = constants(x, scale)
    if differentiated(x):
        one, two = attach(found.one, found.two, x, scale)
        found = found._replace(one=one, two=two)
    return found


def _compiled(
    x: Array, host: np.ndarray[tuple[int, ...], np.dtype[np.float64]], scale: float
) -> Constants:
    from taut._kernel.driver import row_constants  # numba is imported when it is first needed

    one, two, relative, absolute = row_constants(host, scale, default_threads(x))
    if np.isnan(np.sum(two)):
        xp = namespace(x)
        check_logits(xp, xp.max(stop_gradient(x), axis=-1), name="x")
        raise ArithmeticError("the secular equation was not solved; please report these logits")
    one, two = (like(c, x) for c in (one, two))
    return Constants(one, two, relative, absolute)
