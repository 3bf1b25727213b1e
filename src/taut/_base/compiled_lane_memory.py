"""Vectors of compiled code between memory and registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from taut._base.compiled_lanes import Lanes, vector_of

PREFETCH_LEVEL = 2  # into the second-level cache and above


def pointer_to(ctx: Any, builder: Any, kind: Any, array: Any, row: Any, column: Any) -> Any:
    """Address of an entry of a matrix whose rows are contiguous."""
    view = ctx.make_array(kind)(ctx, builder, array)
    width = builder.extract_value(view.shape, 1)
    return builder.gep(view.data, [builder.add(builder.mul(row, width), column)])


def as_vector(builder: Any, pointer: Any, vector: Any) -> Any:
    return builder.bitcast(pointer, vector.as_pointer())


@intrinsic
def load_lanes(_context: Any, like: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Entries of a row of a C-contiguous matrix from a column on, in the precision of ``like``."""
    kind = Lanes(like)

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, array, row, column = args
        pointer = pointer_to(ctx, builder, sig.args[1], array, row, column)
        stored = vector_of(sig.args[1].dtype, kind.count)
        value = builder.load(
            as_vector(builder, pointer, stored), align=sig.args[1].dtype.bitwidth // 8
        )
        wanted = vector_of(kind.element, kind.count)
        return value if stored == wanted else builder.fptrunc(value, wanted)

    return kind(like, matrix, types.intp, types.intp), generate


@intrinsic
def store_lanes(_context: Any, matrix: Any, row: Any, column: Any, lanes: Any) -> Any:
    """Write lanes to a row of a C-contiguous matrix from a column on, widened if need be."""

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        array, row, column, value = args
        kind = sig.args[3]
        pointer = pointer_to(ctx, builder, sig.args[0], array, row, column)
        stored = vector_of(sig.args[0].dtype, kind.count)
        if value.type != stored:
            value = builder.fpext(value, stored)
        align = sig.args[0].dtype.bitwidth // 8
        builder.store(value, as_vector(builder, pointer, stored), align=align)
        return ctx.get_dummy_value()

    return types.void(matrix, types.intp, types.intp, lanes), generate


@intrinsic
def prefetch(_context: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of an entry of a matrix, which is soon to be read."""

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = pointer_to(ctx, builder, sig.args[0], *args)
        integer = ir.IntType(32)
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, integer, integer, integer])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [pointer, integer(0), integer(PREFETCH_LEVEL), integer(1)])
        return ctx.get_dummy_value()

    return types.void(matrix, types.intp, types.intp), generate
