"""Operations of compiled code that numba does not offer: one machine instruction each.

Nothing here uses fast-math. LLVM may reorder the sums written with ``plus``, which lets it
vectorise them, and nothing else: compensated differences would be optimised away otherwise. For the
same reason none of these functions may be called from a function compiled with ``fastmath``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def fma(_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, rounded once."""
    return a(a, a, a), lambda _ctx, builder, _sig, args: builder.fma(*args)


@intrinsic
def largest(_context: Any, a: Any, b: Any) -> Any:
    """Maximum that ignores NaN (those are found in the sums)."""

    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        kind = args[0].type
        function = builder.module.declare_intrinsic(
            "llvm.maxnum", [kind], ir.FunctionType(kind, [kind, kind])
        )
        return builder.call(function, args, fastmath=("nnan", "nsz"))

    return a(a, a), generate


@intrinsic
def plus(_context: Any, a: Any, b: Any) -> Any:
    """A + b in any order: the one operation LLVM may reassociate, hence vectorise as a sum."""
    flags = ("reassoc", "contract")
    return a(a, b), lambda _ctx, builder, _sig, args: builder.fadd(*args, flags=flags)


@intrinsic
def times(_context: Any, a: Any, b: Any) -> Any:
    """a·b that may fuse into a sum."""
    flags = ("contract",)
    return a(a, b), lambda _ctx, builder, _sig, args: builder.fmul(*args, flags=flags)


@intrinsic
def select(_context: Any, condition: Any, a: Any, b: Any) -> Any:
    """``a`` if the condition holds, else ``b``; never a branch."""
    return a(condition, a, b), lambda _ctx, builder, _sig, args: builder.select(*args)


@intrinsic
def wide_vectors(_context: Any) -> Any:
    """Let LLVM use the widest vectors of the machine in the calling function; a hint only."""

    def generate(ctx: Any, builder: Any, _sig: Any, _args: Any) -> Any:
        # llvmlite's own add() refuses attributes with a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return ctx.get_dummy_value()

    return types.void(), generate


@intrinsic
def times_power(_context: Any, y: Any, k: Any) -> Any:
    """y·2^k, with k in the low bits of the float k + 1.5·2^(p−1); the result must be normal."""

    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        width, shift = (32, 23) if y == types.float32 else (64, 52)
        integer = ir.IntType(width)
        bits, power = (builder.bitcast(value, integer) for value in args)
        shifted = builder.shl(power, ir.Constant(integer, shift))
        return builder.bitcast(builder.add(bits, shifted), args[0].type)

    return y(y, y), generate
