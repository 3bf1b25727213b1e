"""The exact constants of every row: compiled where possible, portable elsewhere, differentiable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from taut._base.array import (
    Array,
    default_threads,
    differentiated,
    eps_of,
    host_view,
    in_compiled_graph,
    is_jax,
    known,
    lines_like,
    namespace,
    stop_gradient,
)
from taut._base.array_rounding import product
from taut._base.checks import check_logits
from taut._base.reductions import row_max
from taut._softmax.derivatives import attach
from taut._softmax.kernel import imported_driver
from taut._softmax.kernel.error import error_bound
from taut._softmax.secular import constants, constants_underflow
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
    found = None
    if kernel_takes(scale):
        host = host_view(x)
        found = _traced(x, scale) if host is None else _compiled(x, host, scale)
        if found is not None:
            return found
    xp = namespace(x)
    check_logits(xp, row_max(x), name="x")
    one, two, relative, absolute = constants(x, scale)
    if differentiated(x):
        one, two = attach(one, two, x, scale)
    ceiling = product(scale, 0.5, up=True)
    return Exact(
        exact_sides(one, relative, absolute, ceiling, ("local-1-inf",)),
        exact_sides(two, relative, absolute, ceiling, ("local-2",)),
        relative,
        absolute,
    )


def kernel_takes(scale: float) -> bool:
    """Whether compiled code can work with the scale."""
    return _SMALLEST_SCALE <= scale <= _LARGEST_SCALE


def _exact(lines: Sequence[Array], x: Array, scale: float, *, checked: bool = True) -> Exact:
    """From lower, value and upper of the one constant, and of the other."""
    return Exact(
        Sides(lines[0], lines[2], lines[1], "exact", ("local-1-inf",), "proved", checked),
        Sides(lines[3], lines[5], lines[4], "exact", ("local-2",), "proved", checked),
        *error_bound(eps_of(x) > 1e-10, scale),
    )


def _traced(x: Array, scale: float) -> Exact | None:
    """Where the values cannot be seen; None where compiled code has no place either."""
    if in_compiled_graph(x):
        from taut._softmax.torch_operator import constant_lines as one_node

        # torch.compile cannot read the short way to a Bound that was checked
        return _exact(one_node(x, scale)[0].unbind(), x, scale, checked=False)
    if is_jax(x) and differentiated(x):
        return _traced_by_jax(x, scale)
    return None


def _traced_by_jax(x: Array, scale: float) -> Exact | None:
    """None where compiled code cannot be handed to XLA."""
    try:
        from taut._softmax.jax_operators import constant_lines  # imports parts of JAX
    except (ImportError, AttributeError):  # which other versions have in other places
        return None
    lines = constant_lines(x, scale)
    if lines is None:
        return None
    xp = namespace(x)
    if known(xp.any(xp.isnan(stop_gradient(lines[1] + lines[4])))):  # outside of jit
        check_logits(xp, row_max(stop_gradient(x)), name="x")
    exact = _exact(lines, x, scale)
    return exact._replace(relative=lines[6], absolute=constants_underflow(x, scale))


def _compiled(
    x: Array, host: np.ndarray[tuple[int, ...], np.dtype[np.float64]], scale: float
) -> Exact | None:
    """Where the values can be seen; None for logits at the very end of the range."""
    if differentiated(x):
        from taut._softmax.torch_function import constant_lines  # imports torch

        return _exact(constant_lines(x, scale), x, scale)
    ceiling = rounded_up(scale / 2, x)
    out, ordered = imported_driver().row_constants(host, scale, ceiling, lambda: default_threads(x))
    if not ordered:
        xp = namespace(x)
        check_logits(xp, row_max(stop_gradient(x)), name="x")
        return None
    if is_jax(x):  # XLA would read a subnormal number as 0
        normal = np.finfo(host.dtype).smallest_normal
        small = (out > 0) & (out < normal)
        out[[0, 3]] = np.where(small[[0, 3]], 0, out[[0, 3]])
        out[[2, 5]] = np.where(small[[2, 5]], normal, out[[2, 5]])
    return _exact(lines_like(out, x), x, scale)
