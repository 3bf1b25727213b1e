"""Vectors of compiled code between memory and registers."""

from __future__ import annotations

from collections.abc import Iterator
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


def _exchanges(count: int, part: int) -> Iterator[tuple[int, list[list[int]]]]:
    """Which lines are mixed, and where the lanes of both then come from.

    First within parts of 16 bytes, then whole parts: one instruction each in the widest registers.
    """
    size = 1
    while size < part:
        yield (
            size,
            [
                [
                    line * count + base + half * part // 2 + unit + i
                    for base in range(0, count, part)
                    for unit in range(0, part // 2, size)
                    for line in (0, 1)
                    for i in range(size)
                ]
                for half in (0, 1)
            ],
        )
        size *= 2
    while size < count:
        yield (
            size,
            [
                [
                    line * count + base + i
                    for line in (0, 1)
                    for base in range(odd * part, count, 2 * part)
                    for i in range(part)
                ]
                for odd in (0, 1)
            ],
        )
        size *= 2


def _reversed_bits(i: int, part: int) -> int:
    """The number i with the bits of its remainder by ``part``, a power of two, in reverse order."""
    places = part.bit_length() - 1
    bits = f"{i % part:0{places}b}"[::-1] if places else "0"
    return i - i % part + int(bits, 2)


@intrinsic
def transpose_square(
    _context: Any, x: Any, row: Any, column: Any, out: Any, out_row: Any, out_column: Any
) -> Any:
    """Copy a square of ``x`` from (row, column) on to ``out`` from its place on as its transpose.

    Its sides are as long as a vector.
    """
    count, part = Lanes(x.dtype).count, 128 // x.dtype.bitwidth

    def generate(ctx: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, row, column, target, out_row, out_column = args
        vector = vector_of(sig.args[0].dtype, count)
        align = sig.args[0].dtype.bitwidth // 8

        def line(array: Any, at: int, row: Any, column: Any) -> Any:
            place = builder.add(row, ir.Constant(row.type, at))
            pointer = pointer_to(ctx, builder, *array, place, column)
            return as_vector(builder, pointer, vector)

        here, there = (sig.args[0], source), (sig.args[3], target)
        lines = [builder.load(line(here, i, row, column), align=align) for i in range(count)]
        for distance, masks in _exchanges(count, part):
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), count), mask) for mask in masks]
            for i in range(count):
                if i & distance == 0:
                    pair = lines[i], lines[i + distance]
                    mixed = (builder.shuffle_vector(*pair, mask) for mask in masks)
                    lines[i], lines[i + distance] = mixed
        # Within a part of a register columns have changed places: the bits of their number.
        lines = [lines[_reversed_bits(i, part)] for i in range(count)]
        for i in range(count):
            builder.store(lines[i], line(there, i, out_row, out_column), align=align)
        return ctx.get_dummy_value()

    places = (types.intp, types.intp)
    return types.void(x, *places, out, *places), generate
