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

from taut._base.compiled_lanes import call_own, integers_like, is_single, lanewise


@intrinsic
def fma(_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, rounded once; also of lanes."""
    return lanewise((a, b, c), lambda builder, *args: call_own(builder, "fma", *args))


@intrinsic
def largest(_context: Any, a: Any, b: Any) -> Any:
    """Maximum that ignores NaN (those are found in the sums); also of lanes."""

    def make(builder: Any, *args: Any) -> Any:
        return call_own(builder, "maxnum", *args, fastmath=("nnan", "nsz"))

    return lanewise((a, b), make)


@intrinsic
def smallest(_context: Any, a: Any, b: Any) -> Any:
    """Minimum that ignores NaN; also of lanes."""

    def make(builder: Any, *args: Any) -> Any:
        return call_own(builder, "minnum", *args, fastmath=("nnan", "nsz"))

    return lanewise((a, b), make)


@intrinsic
def plus(_context: Any, a: Any, b: Any) -> Any:
    """A + b in any order: the one operation LLVM may reassociate, hence vectorise as a sum.

    Also of lanes.
    """
    flags = ("reassoc", "contract")
    return lanewise((a, b), lambda builder, a, b: builder.fadd(a, b, flags=flags))


@intrinsic
def times(_context: Any, a: Any, b: Any) -> Any:
    """a·b that may fuse into a sum; also of lanes."""
    flags = ("contract",)
    return lanewise((a, b), lambda builder, a, b: builder.fmul(a, b, flags=flags))


@intrinsic
def select(_context: Any, condition: Any, a: Any, b: Any) -> Any:
    """``a`` if the condition holds, else ``b``; never a branch."""
    return a(condition, a, b), lambda _ctx, builder, _sig, args: builder.select(*args)


@intrinsic
def where_below(_context: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """``yes`` if a < b, else ``no``, also where either is NaN; also of lanes."""

    def make(builder: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", a, b), yes, no)

    return lanewise((a, b, yes, no), make)


@intrinsic
def where_equal(_context: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """``yes`` if a = b, else ``no``; also of lanes."""

    def make(builder: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
        return builder.select(builder.fcmp_ordered("==", a, b), yes, no)

    return lanewise((a, b, yes, no), make)


@intrinsic
def where_between(_context: Any, low: Any, x: Any, high: Any, yes: Any, no: Any) -> Any:
    """``yes`` if low ≤ x ≤ high, else ``no``, also where one is NaN; also of lanes."""

    def make(builder: Any, low: Any, x: Any, high: Any, yes: Any, no: Any) -> Any:
        above = builder.fcmp_ordered("<=", low, x)
        inside = builder.and_(above, builder.fcmp_ordered("<=", x, high))
        return builder.select(inside, yes, no)

    return lanewise((low, x, high, yes, no), make)


@intrinsic
def wide_vectors(_context: Any) -> Any:
    """Let LLVM use the widest vectors of the machine in the calling function; a hint only."""

    def generate(ctx: Any, builder: Any, _sig: Any, _args: Any) -> Any:
        # llvmlite's own add() refuses attributes with a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return ctx.get_dummy_value()

    return types.void(), generate


@intrinsic
def assume_width(_context: Any, matrix: Any, width: Any) -> Any:
    """Promise that the rows of a matrix have ``width`` entries, a constant.

    LLVM then knows that its rows do not overlap, and vectorises loops over several of them without
    asking at run time, which takes longer than short loops.
    """

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        view = ctx.make_array(sig.args[0])(ctx, builder, args[0])
        same = builder.icmp_signed("==", builder.extract_value(view.shape, 1), args[1])
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(1)])
        function = builder.module.globals.get("llvm.assume")
        builder.call(function or ir.Function(builder.module, kind, "llvm.assume"), [same])
        return ctx.get_dummy_value()

    return types.void(matrix, types.intp), generate


@intrinsic
def times_power(_context: Any, y: Any, k: Any) -> Any:
    """y·2^k, with k in the low bits of the float k + 1.5·2^(p−1); the result must be normal.

    Also of lanes.
    """

    def make(builder: Any, y: Any, k: Any) -> Any:
        integer, count = integers_like(y.type)
        shift = ir.Constant(integer, [places] * count if count else places)
        bits, power = (builder.bitcast(value, integer) for value in (y, k))
        return builder.bitcast(builder.add(bits, builder.shl(power, shift)), y.type)

    places = 23 if is_single(y) else 52
    return lanewise((y, k), make)


@intrinsic
def significand(_context: Any, x: Any) -> Any:
    """x·2^−k in [√½, √2) for a normal x > 0, with k = ``binary_exponent(x)``."""
    return lanewise((x,), lambda builder, x: _split(builder, x)[0])


@intrinsic
def binary_exponent(_context: Any, x: Any) -> Any:
    """The integer k, as a float64, for which x·2^−k lies in [√½, √2); x > 0 and normal."""
    return lanewise((x,), lambda builder, x: _split(builder, x)[1])


def _split(builder: Any, x: Any) -> tuple[Any, Any]:
    """Significand and exponent of a float64 by operations on its bits, which LLVM can vectorise."""
    integer = ir.IntType(64)
    bits = builder.bitcast(x, integer)
    # √½ is where the exponent changes; 1.5·2^52 turns the small integer k into a float.
    above = builder.sub(bits, ir.Constant(integer, 0x3FE6A09E667F3BCD))
    k = builder.ashr(above, ir.Constant(integer, 52))
    mantissa = builder.sub(bits, builder.shl(k, ir.Constant(integer, 52)))
    shifted = builder.bitcast(builder.add(k, ir.Constant(integer, 0x4338000000000000)), x.type)
    exponent = builder.fsub(shifted, ir.Constant(x.type, 1.5 * 2.0**52))
    return builder.bitcast(mantissa, x.type), exponent
