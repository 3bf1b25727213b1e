"""The compiled constants and their derivative as primitives of JAX: one node of a graph each.

On CPUs each is a custom call of the compiled code; elsewhere it is lowered to the portable
formulas. Importing this module imports JAX.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from taut._base.array import Array
from taut._softmax.derivatives import attach
from taut._softmax.jax_calls import custom_call
from taut._softmax.kernel.error import error_bound
from taut._softmax.kernel.found import FOUND
from taut._softmax.secular import constants
from taut._softmax.sides import exact_sides, rounded_up

# x are logits, (…, n); ``found`` is what the derivative needs of every row, float64 in pairs of 32
# bits, as float64 may be switched off: of shape (FOUND, …, 2), or (FOUND, 0) if not kept.
# From x to lower, value and upper of either constant, their relative error, and found
constants_node = Primitive("taut_constants")
# From dx, x and found to the tangents of the two constants, linear in dx
tangents_node = Primitive("taut_constants_tangents")
# Its transpose, from a weight for each constant, x and found to the gradient of their sum
gradient_node = Primitive("taut_constants_gradient")
constants_node.multiple_results = tangents_node.multiple_results = True


@constants_node.def_abstract_eval
def _(x: Any, *, scale: float, kept: bool) -> list[Any]:
    line = _line_of(x)
    shape = (FOUND, *x.shape[:-1], 2) if kept else (FOUND, 0)
    spec = (None, *x.sharding.spec[:-1], None) if kept else (None, None)
    found = x.update(
        shape=shape,
        dtype=np.dtype(np.uint32),
        weak_type=False,
        sharding=x.sharding.update(spec=spec),
    )
    return [line] * 7 + [found]


def _line_of(x: Any) -> Any:
    """One number for every row, divided among devices as the rows are."""
    sharding = x.sharding.update(spec=x.sharding.spec[:-1])
    return x.update(shape=x.shape[:-1], weak_type=False, sharding=sharding)


@tangents_node.def_abstract_eval
def _(dx: Any, x: Any, found: Any, *, scale: float) -> list[Any]:
    return [_line_of(x)] * 2


@gradient_node.def_abstract_eval
def _(one: Any, two: Any, x: Any, found: Any, *, scale: float) -> Any:
    return x.update(weak_type=False)


# What the primitives are, off the CPU and for further derivatives
def _portable_constants(x: Array, *, scale: float, kept: bool) -> list[Array]:
    one, two, relative, absolute = constants(x, scale)
    lines = []
    for value in (one, two):
        sides = exact_sides(value, relative, absolute, scale / 2, ())
        lines += [sides.lower, sides.estimate, sides.upper]
    shape = (FOUND, *x.shape[:-1], 2) if kept else (FOUND, 0)
    return [*lines, jnp.broadcast_to(relative, one.shape), jnp.zeros(shape, jnp.uint32)]


def _formula(x: Array, scale: float) -> tuple[Array, Array]:
    zero = jnp.zeros(x.shape[:-1], x.dtype)
    return attach(zero, zero, x, scale)


def portable_tangents(dx: Array, x: Array, found: Array, *, scale: float) -> list[Array]:
    return list(jax.jvp(partial(_formula, scale=scale), (x,), (dx,))[1])


def portable_gradient(one: Array, two: Array, x: Array, found: Array, *, scale: float) -> Array:
    _, pull = jax.vjp(partial(_formula, scale=scale), x)
    return pull((one, two))[0]


# What they are on the CPU
def _constants_on_cpu(ctx: Any, x: Any, *, scale: float, kept: bool) -> Any:
    logits = ctx.avals_in[0]
    errors = error_bound(logits.dtype.itemsize == 4, scale)
    numbers = [scale, rounded_up(scale / 2, logits), *errors]
    return custom_call("constants", ctx, x, numbers=numbers)


def _gradient_on_cpu(ctx: Any, *operands: Any, scale: float) -> Any:
    return custom_call("gradients", ctx, *operands, numbers=[scale])


def _compiled_tangents(dx: Array, x: Array, found: Array, *, scale: float) -> list[Array]:
    """XLA leaves out the gradient of the constant that nobody asks for."""
    ones, zeros = jnp.ones(x.shape[:-1], x.dtype), jnp.zeros(x.shape[:-1], x.dtype)
    gradients = (
        gradient_node.bind(*pair, x, found, scale=scale) for pair in ((ones, zeros), (zeros, ones))
    )
    moves = jnp.where(x == -jnp.inf, 0, dx)  # a masked entry may move by anything
    return [jnp.sum(gradient * moves, axis=-1) for gradient in gradients]


mlir.register_lowering(constants_node, mlir.lower_fun(_portable_constants, multiple_results=True))
mlir.register_lowering(tangents_node, mlir.lower_fun(portable_tangents, multiple_results=True))
mlir.register_lowering(gradient_node, mlir.lower_fun(portable_gradient, multiple_results=False))
mlir.register_lowering(constants_node, _constants_on_cpu, platform="cpu")
mlir.register_lowering(
    tangents_node, mlir.lower_fun(_compiled_tangents, multiple_results=True), platform="cpu"
)
mlir.register_lowering(gradient_node, _gradient_on_cpu, platform="cpu")


def _run(primitive: Any) -> Any:
    """Runs a primitive outside of a graph, as a graph of one node."""
    graph = jax.jit(primitive.bind, static_argnames=("scale", "kept"))

    def run(*args: Array, **options: Any) -> Any:
        with jax.disable_jit(False):  # or the graph would run the primitive
            return graph(*args, **options)

    return run


for _primitive in (constants_node, tangents_node, gradient_node):
    _primitive.def_impl(_run(_primitive))


# How they are mapped: rows are independent
def _batched_constants(args: Any, axes: Any, *, scale: float, kept: bool) -> Any:
    x = jnp.moveaxis(args[0], axes[0], 0)
    result = constants_node.bind(x, scale=scale, kept=kept)
    return result, [0] * 7 + [1 if kept else None]


def _batched(primitive: Any, args: Any, axes: Any, *, scale: float) -> Any:
    size = next(arg.shape[axis] for arg, axis in zip(args, axes, strict=True) if axis is not None)
    places = [0] * (len(args) - 1) + [1]  # of found
    moved = [
        batching.bdim_at_front(arg, axis, size) if place == 0 else _at_second(arg, axis, size)
        for arg, axis, place in zip(args, axes, places, strict=True)
    ]
    result = primitive.bind(*moved, scale=scale)
    return result, [0] * len(result) if primitive.multiple_results else 0


def _at_second(found: Array, axis: Any, size: int) -> Array:
    if axis is not None:
        return jnp.moveaxis(found, axis, 1)
    return jnp.broadcast_to(found[:, None], (FOUND, size, *found.shape[1:]))


batching.primitive_batchers[constants_node] = _batched_constants
batching.primitive_batchers[tangents_node] = partial(_batched, tangents_node)
batching.primitive_batchers[gradient_node] = partial(_batched, gradient_node)
