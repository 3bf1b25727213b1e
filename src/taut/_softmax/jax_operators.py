"""The compiled kernel in traced code of JAX: the exact constants and their derivative as primitives.

The graph holds one node for the constants of all rows and one for their derivative. On CPUs each
is a custom call of the compiled code; elsewhere it is lowered to the portable formulas. NaN cannot
be refused while a graph runs, so it comes out as NaN. Importing this module imports JAX.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache, partial
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from taut._base.array import Array
from taut._softmax.derivatives import attach
from taut._softmax.kernel.error import error_bound
from taut._softmax.kernel.found import FOUND
from taut._softmax.secular import constants
from taut._softmax.sides import exact_sides, rounded_up


def constant_lines(x: Array, scale: float) -> list[Array] | None:
    """Lower, value and upper of λ‖M‖₁ and of λ‖M‖₂ of every row, and their relative error.

    Seven arrays, differentiable; None where compiled code cannot be handed to XLA.
    """
    if not _registered(x.dtype.char):
        return None
    return _lines(x, scale, False)[:-1]


@lru_cache
def _registered(char: str) -> bool:
    """Whether XLA knows the compiled code of one precision; compiles it on first use."""
    from taut._base.compiled_memory import MODES_ARE_KNOWN

    if not MODES_ARE_KNOWN or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    from taut._softmax.kernel.xla_calls import handlers

    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    try:
        for name, handler in zip(("constants", "gradients"), handlers(char), strict=True):
            target = capsule(handler.address, None, None)
            jax.ffi.register_ffi_target(_target(name, char), target, platform="cpu")
    except (RuntimeError, ValueError):  # this XLA speaks another version
        return False
    return True


@lru_cache
def _target(name: str, char: str) -> str:
    """The name by which XLA knows compiled code, different for other sources."""
    from pathlib import Path

    from taut._base.compiled import digest
    from taut._softmax.kernel import xla_calls

    return f"taut_{name}_{char}_{digest(Path(xla_calls.__file__))}"


# The primitives. x are logits, (…, n); ``found`` is what the derivative needs of every row, float64
# in pairs of 32 bits, as float64 may be switched off: (FOUND, …, 2), or (FOUND, 0) if not kept.
_constants = Primitive("taut_constants")  # x -> seven lines, found
_tangents = Primitive("taut_constants_tangents")  # dx, x, found -> tangents of the two constants
_gradient = Primitive("taut_constants_gradient")  # one, two, x, found -> gradient of their sum
_constants.multiple_results = _tangents.multiple_results = True


@_constants.def_abstract_eval
def _(x: Any, *, scale: float, kept: bool) -> list[Any]:
    line = x.update(shape=x.shape[:-1], weak_type=False)
    shape = (FOUND, *x.shape[:-1], 2) if kept else (FOUND, 0)
    return [line] * 7 + [x.update(shape=shape, dtype=np.dtype(np.uint32), weak_type=False)]


@_tangents.def_abstract_eval
def _(dx: Any, x: Any, found: Any, *, scale: float) -> list[Any]:
    return [x.update(shape=x.shape[:-1], weak_type=False)] * 2


@_gradient.def_abstract_eval
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


def _portable_tangents(dx: Array, x: Array, found: Array, *, scale: float) -> tuple[Array, Array]:
    tangents: tuple[Array, Array] = jax.jvp(partial(_formula, scale=scale), (x,), (dx,))[1]
    return tangents


def _portable_gradient(one: Array, two: Array, x: Array, found: Array, *, scale: float) -> Array:
    _, pull = jax.vjp(partial(_formula, scale=scale), x)
    return pull((one, two))[0]


# What they are on the CPU
def _call(name: str, ctx: Any, *operands: Any, numbers: list[float]) -> Any:
    char = ctx.avals_out[0].dtype.char
    lower = jax.ffi.ffi_lowering(_target(name, char))
    return lower(ctx, *operands, numbers=np.array(numbers, np.float64))


def _constants_on_cpu(ctx: Any, x: Any, *, scale: float, kept: bool) -> Any:
    logits = ctx.avals_in[0]
    errors = error_bound(logits.dtype.itemsize == 4, scale)
    numbers = [scale, rounded_up(scale / 2, logits), *errors]
    return _call("constants", ctx, x, numbers=numbers)


def _gradient_on_cpu(ctx: Any, *operands: Any, scale: float) -> Any:
    return _call("gradients", ctx, *operands, numbers=[scale])


def _compiled_tangents(dx: Array, x: Array, found: Array, *, scale: float) -> list[Array]:
    """XLA leaves out the one that nobody asks for."""
    ones, zeros = jnp.ones(x.shape[:-1], x.dtype), jnp.zeros(x.shape[:-1], x.dtype)
    gradients = (
        _gradient.bind(*pair, x, found, scale=scale) for pair in ((ones, zeros), (zeros, ones))
    )
    moves = jnp.where(x == -jnp.inf, 0, dx)  # a masked entry may move by anything
    return [jnp.sum(gradient * moves, axis=-1) for gradient in gradients]


mlir.register_lowering(_constants, mlir.lower_fun(_portable_constants, multiple_results=True))
mlir.register_lowering(_tangents, mlir.lower_fun(_portable_tangents, multiple_results=True))
mlir.register_lowering(_gradient, mlir.lower_fun(_portable_gradient, multiple_results=False))
mlir.register_lowering(_constants, _constants_on_cpu, platform="cpu")
mlir.register_lowering(
    _tangents, mlir.lower_fun(_compiled_tangents, multiple_results=True), platform="cpu"
)
mlir.register_lowering(_gradient, _gradient_on_cpu, platform="cpu")


def _run(primitive: Any) -> Any:
    """What runs a primitive outside of a graph: a graph of nothing else."""
    graph = jax.jit(primitive.bind, static_argnames=("scale", "kept"))

    def run(*args: Array, **options: Any) -> Any:
        with jax.disable_jit(False):  # or the graph would run the primitive
            return graph(*args, **options)

    return run


for _primitive in (_constants, _tangents, _gradient):
    _primitive.def_impl(_run(_primitive))


# Their derivatives
@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _lines(x: Array, scale: float, kept: bool) -> list[Array]:
    found: list[Array] = _constants.bind(x, scale=scale, kept=kept)
    return found


@_lines.defjvp
def _lines_moved(scale: float, kept: bool, primals: Any, tangents: Any) -> Any:
    """All three sides of a constant have its derivative."""
    (x,), (dx,) = primals, tangents
    *lines, found = _lines(x, scale, True)
    one, two = _tangents.bind(dx, x, found, scale=scale)
    found = found if kept else jnp.zeros((FOUND, 0), jnp.uint32)
    still = [jnp.zeros_like(lines[6]), np.zeros(found.shape, jax.dtypes.float0)]
    return [*lines, found], [one] * 3 + [two] * 3 + still


def _linear_and_more(primitive: Any, portable: Any, primals: Any, tangents: Any, scale: float) -> Any:
    """The derivative of a primitive that is linear in all but the last two operands, x and found.

    That with respect to x is the portable formula's.
    """
    *linear, x, found = primals
    *moved, dx, _ = tangents
    result = primitive.bind(*primals, scale=scale)
    parts = []
    if not all(type(each) is ad.Zero for each in moved):
        moved = [ad.instantiate_zeros(each) for each in moved]
        parts.append(primitive.bind(*moved, x, found, scale=scale))
    if type(dx) is not ad.Zero:
        by_formula = lambda x: portable(*linear, x, found, scale=scale)  # noqa: E731
        parts.append(jax.jvp(by_formula, (x,), (dx,))[1])
    return result, parts[0] if len(parts) == 1 else jax.tree.map(jnp.add, *map(_tuples, parts))


def _tuples(values: Any) -> Any:
    return tuple(values) if isinstance(values, list) else values


def _tangents_moved(primals: Any, tangents: Any, *, scale: float) -> Any:
    return _linear_and_more(_tangents, _portable_tangents, primals, tangents, scale)


def _gradient_moved(primals: Any, tangents: Any, *, scale: float) -> Any:
    return _linear_and_more(_gradient, _portable_gradient, primals, tangents, scale)


ad.primitive_jvps[_tangents] = _tangents_moved
ad.primitive_jvps[_gradient] = _gradient_moved


def _tangents_transposed(grads: Any, dx: Any, x: Any, found: Any, *, scale: float) -> Any:
    one, two = (ad.instantiate_zeros(grad) for grad in grads)
    return [_gradient.bind(one, two, x, found, scale=scale), None, None]


def _gradient_transposed(grad: Any, one: Any, two: Any, x: Any, found: Any, *, scale: float) -> Any:
    pair = _tangents.bind(ad.instantiate_zeros(grad), x, found, scale=scale)
    asked = [
        value if ad.is_undefined_primal(given) else None
        for value, given in zip(pair, (one, two), strict=True)
    ]
    return [*asked, None, None]


ad.primitive_transposes[_tangents] = _tangents_transposed
ad.primitive_transposes[_gradient] = _gradient_transposed


# How they are mapped: rows are independent
def _batched_constants(args: Any, axes: Any, *, scale: float, kept: bool) -> Any:
    x = jnp.moveaxis(args[0], axes[0], 0)
    result = _constants.bind(x, scale=scale, kept=kept)
    return result, [0] * 7 + [1 if kept else batching.not_mapped]


def _batched(primitive: Any, args: Any, axes: Any, *, scale: float) -> Any:
    size = next(
        arg.shape[axis]
        for arg, axis in zip(args, axes, strict=True)
        if axis is not batching.not_mapped
    )
    places = [0] * (len(args) - 1) + [1]  # of found
    moved = [
        batching.bdim_at_front(arg, axis, size) if place == 0 else _at_second(arg, axis, size)
        for arg, axis, place in zip(args, axes, places, strict=True)
    ]
    result = primitive.bind(*moved, scale=scale)
    return result, [0] * len(result) if primitive.multiple_results else 0


def _at_second(found: Array, axis: Any, size: int) -> Array:
    if axis is not batching.not_mapped:
        return jnp.moveaxis(found, axis, 1)
    return jnp.broadcast_to(found[:, None], (FOUND, size, *found.shape[1:]))


batching.primitive_batchers[_constants] = _batched_constants
batching.primitive_batchers[_tangents] = partial(_batched, _tangents)
batching.primitive_batchers[_gradient] = partial(_batched, _gradient)
