"""The exact constants of every row: compiled where possible, portable elsewhere, differentiable."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut._base.array import (
    Array,
    default_threads,
    differentiated,
    host_view,
    is_jax,
    like,
    namespace,
    stop_gradient,
)
from taut._base.array_rounding import product
from taut._base.checks import check_logits
from taut._softmax.derivatives import attach
from taut._softmax.secular import constants
from taut._softmax.sides import Sides, exact_sides, rounded_up

# The kernel works with scales that are normal numbers in float32, with room to spare.
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-30, 1e30


class Exact(NamedTuple):
    """λ‖M‖₁ and λ‖M‖₂ of every row, and how far rounding may have moved them."""

    one: Sides
    two: Sides
    relative: Array | float
    absolute: float


def exact_constants(x: Array, scale: float) -> Exact:
    """λ‖M‖₁ and λ‖M‖₂ of every row of logits (last axis), scale ≥ 0; NaN and +inf are refused."""
    host = host_view(x)
    found = None
    if host is not None and _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        found = _compiled(x, host, scale)
    if found is None:
        xp = namespace(x)
        check_logits(xp, xp.max(x, axis=-1), name="x")
        one, two, relative, absolute = constants(x, scale)
    elif differentiated(x):
        one, two = found.one.estimate, found.two.estimate
        relative, absolute = found.relative, found.absolute
    else:
        return found
    if differentiated(x):
        one, two = attach(one, two, x, scale)
    ceiling = product(scale, 0.5, up=True)
    return Exact(
        exact_sides(one, relative, absolute, ceiling, ("local-1-inf",)),
        exact_sides(two, relative, absolute, ceiling, ("local-2",)),
        relative,
        absolute,
    )


def _compiled(
    x: Array, host: np.ndarray[tuple[int, ...], np.dtype[np.float64]], scale: float
) -> Exact | None:
    # numba is imported when it is first needed
    from taut._softmax.kernel.driver import error_bound, row_constants

    out = row_constants(host, scale, rounded_up(scale / 2, x), default_threads(x))
    if out.size and not np.min(out) >= 0:  # also where a side is NaN
        xp = namespace(x)
        check_logits(xp, xp.max(stop_gradient(x), axis=-1), name="x")
        return None  # logits at the very end of the range
    if is_jax(x):  # XLA would read a subnormal number as 0
        normal = np.finfo(host.dtype).smallest_normal
        small = (out > 0) & (out < normal)
        out[[0, 3]] = np.where(small[[0, 3]], 0, out[[0, 3]])
        out[[2, 5]] = np.where(small[[2, 5]], normal, out[[2, 5]])
    lines = [like(out[i, ...], x) for i in range(6)]
    return Exact(
        Sides(lines[0], lines[2], lines[1], "exact", ("local-1-inf",), rounding="proved"),
        Sides(lines[3], lines[5], lines[4], "exact", ("local-2",), rounding="proved"),
        *error_bound(host.dtype, scale),
    )
