"""Long vectors of numbers in compiled code, read and written in part: for loops along a row.

LLVM splits a long vector into several registers. The operations on them do not depend on each
other, so that the processor overlaps them, which hides how long each one takes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from taut._base.compiled_lane_memory import as_vector, pointer_to
from taut._base.compiled_lanes import Lanes, spread, vector_of

LONG = 128  # bytes of a long vector
_INTEGER = ir.IntType(32)


@intrinsic
def long_count(_context: Any, like: Any) -> Any:
    """How many lanes a vector like this one has, known when compiled."""
    count = like.count
    return types.intp(like), lambda ctx, _builder, _sig, _args: ctx.get_constant(types.intp, count)


@intrinsic
def long_of(_context: Any, value: Any) -> Any:
    """A number in all lanes of a long vector."""
    kind = Lanes(value, LONG)
    return kind(value), lambda _ctx, builder, _sig, args: spread(builder, args[0], kind)


def _some(ctx: Any, builder: Any, kind: Any, size: int, args: list[Any]) -> Any:
    """Pointer, alignment and flags of the first lanes of a vector of that size in memory."""
    array, row, column, count = args
    vector = vector_of(kind.dtype, size)
    pointer = pointer_to(ctx, builder, kind, array, row, column)
    places = ir.VectorType(_INTEGER, vector.count)
    one = builder.insert_element(
        ir.Constant(places, ir.Undefined), builder.trunc(count, _INTEGER), _INTEGER(0)
    )
    zeros = ir.Constant(places, [0] * vector.count)
    number = builder.shuffle_vector(one, ir.Constant(places, ir.Undefined), zeros)
    flags = builder.icmp_signed("<", ir.Constant(places, list(range(vector.count))), number)
    align = _INTEGER(kind.dtype.bitwidth // 8)
    return vector, as_vector(builder, pointer, vector), align, flags


def _masked(builder: Any, name: str, vector: Any, result: Any, args: list[Any]) -> Any:
    """Call one of LLVM's own functions that read or write some lanes."""
    short = "f32" if isinstance(vector.element, ir.FloatType) else "f64"
    full = f"llvm.masked.{name}.v{vector.count}{short}.p0"
    function = builder.module.globals.get(full)
    if function is None:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = ir.Function(builder.module, kind, full)
    return builder.call(function, args)


@intrinsic
def load_long(_context: Any, matrix: Any, row: Any, column: Any, count: Any, otherwise: Any) -> Any:
    """The first ``count`` entries of a row from a column on, and ``otherwise`` in other lanes."""

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector, pointer, align, flags = _some(ctx, builder, sig.args[0], otherwise.count, args[:4])
        return _masked(builder, "load", vector, vector, [pointer, align, flags, args[4]])

    return otherwise(matrix, types.intp, types.intp, types.intp, otherwise), generate


@intrinsic
def store_long(_context: Any, matrix: Any, row: Any, column: Any, count: Any, lanes: Any) -> Any:
    """Write the first ``count`` lanes to a row from a column on."""

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector, pointer, align, flags = _some(ctx, builder, sig.args[0], lanes.count, args[:4])
        _masked(builder, "store", vector, ir.VoidType(), [args[4], pointer, align, flags])
        return ctx.get_dummy_value()

    return types.void(matrix, types.intp, types.intp, types.intp, lanes), generate


@intrinsic
def sum_of(_context: Any, a: Any) -> Any:
    """The sum of all lanes, by halving."""

    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        total, integer = args[0], ir.IntType(32)
        count = a.count
        while count > 1:
            count //= 2
            halves = (
                ir.Constant(ir.VectorType(integer, count), list(range(start, start + count)))
                for start in (0, count)
            )
            low, high = (builder.shuffle_vector(total, total, half) for half in halves)
            total = builder.fadd(low, high)
        return builder.extract_element(total, ir.Constant(integer, 0))

    return a.element(a), generate
