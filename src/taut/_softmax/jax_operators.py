"""The exact constants in traced code of JAX, with derivatives, by the compiled kernel on CPUs.

Unrolled, the search for a root and its derivative take half a second to compile and 7 to 23 times
as long to run. NaN cannot be refused while a graph runs, so it comes out as NaN. Importing this
module imports JAX.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from taut._base.array import Array
from taut._softmax.jax_calls import registered
from taut._softmax.jax_primitives import (
    constants_node,
    gradient_node,
    portable_gradient,
    portable_tangents,
    tangents_node,
)
from taut._softmax.kernel.found import FOUND


def constant_lines(x: Array, scale: float) -> list[Array] | None:
    """Lower, value and upper of λ‖M‖₁ and of λ‖M‖₂ of every row, and their relative error.

    Seven arrays, differentiable; None where compiled code cannot be handed to XLA.
    """
    if not registered(x.dtype.char):
        return None
    found: list[Array] = _lines(x, scale, False)[:-1]
    return found


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _lines(x: Array, scale: float, kept: bool) -> list[Array]:
    found: list[Array] = constants_node.bind(x, scale=scale, kept=kept)
    return found


@_lines.defjvp
def _lines_moved(scale: float, kept: bool, primals: Any, tangents: Any) -> Any:
    """All three sides of a constant have its derivative."""
    (x,), (dx,) = primals, tangents
    *lines, found = _lines(x, scale, True)
    one, two = tangents_node.bind(dx, x, found, scale=scale)
    found = found if kept else jnp.zeros_like(found, shape=(FOUND, 0))
    still = [jnp.zeros_like(lines[6]), jax.custom_derivatives.zero_from_primal(found)]
    return [*lines, found], [one] * 3 + [two] * 3 + still


def _linear_and_more(
    primitive: Any, portable: Any, primals: Any, tangents: Any, scale: float
) -> Any:
    """The derivative of a primitive that is linear in all but the last two operands, x and found.

    That with respect to x is the portable formula's.
    """
    *linear, x, found = primals
    *moved, dx, _ = tangents

    def formula(x: Array) -> Any:
        return portable(*linear, x, found, scale=scale)

    parts = []
    if not all(type(each) is ad.Zero for each in moved):
        moved = [ad.instantiate_zeros(each) for each in moved]
        parts.append(primitive.bind(*moved, x, found, scale=scale))
    if type(dx) is not ad.Zero:
        parts.append(jax.jvp(formula, (x,), (dx,))[1])
    result = primitive.bind(*primals, scale=scale)
    return result, parts[0] if len(parts) == 1 else jax.tree.map(jnp.add, *parts)


def _tangents_moved(primals: Any, tangents: Any, *, scale: float) -> Any:
    return _linear_and_more(tangents_node, portable_tangents, primals, tangents, scale)


def _gradient_moved(primals: Any, tangents: Any, *, scale: float) -> Any:
    return _linear_and_more(gradient_node, portable_gradient, primals, tangents, scale)


ad.primitive_jvps[tangents_node] = _tangents_moved
ad.primitive_jvps[gradient_node] = _gradient_moved


def _tangents_transposed(grads: Any, dx: Any, x: Any, found: Any, *, scale: float) -> Any:
    one, two = (ad.instantiate_zeros(grad) for grad in grads)
    return [gradient_node.bind(one, two, x, found, scale=scale), None, None]


def _gradient_transposed(grad: Any, one: Any, two: Any, x: Any, found: Any, *, scale: float) -> Any:
    pair = tangents_node.bind(ad.instantiate_zeros(grad), x, found, scale=scale)
    asked = [
        value if ad.is_undefined_primal(given) else None
        for value, given in zip(pair, (one, two), strict=True)
    ]
    return [*asked, None, None]


ad.primitive_transposes[tangents_node] = _tangents_transposed
ad.primitive_transposes[gradient_node] = _gradient_transposed
