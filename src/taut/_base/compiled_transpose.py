"""Transposing squares of a matrix in registers, for rows that are worked side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from taut._base.compiled_lane_memory import as_vector, pointer_to
from taut._base.compiled_lanes import Lanes, vector_of


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

        def line(kind: Any, array: Any, place: int, row: Any, column: Any) -> Any:
            row = builder.add(row, ir.Constant(row.type, place))
            pointer = pointer_to(ctx, builder, kind, array, row, column)
            return as_vector(builder, pointer, vector)

        places = [line(sig.args[0], source, i, row, column) for i in range(count)]
        lines = [builder.load(place, align=align) for place in places]
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
            place = line(sig.args[3], target, i, out_row, out_column)
            builder.store(lines[i], place, align=align)
        return ctx.get_dummy_value()

    place = (types.intp, types.intp)
    return types.void(x, *place, out, *place), generate
