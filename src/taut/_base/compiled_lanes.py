"""Vectors of numbers in compiled code: one lane for each of several rows that are worked at once.

LLVM vectorises loops along a row by itself. Short rows it cannot: they are worked side by side,
with every operation written once and done to all of them; a plain number stands for all lanes. A
vector is as wide as the widest registers, and LLVM splits it where they are narrower.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

BYTES = 64  # of a vector


class Lanes(types.Type):
    """The numba type of a vector of float32 or float64."""

    def __init__(self, element: Any, size: int = BYTES) -> None:
        self.element = element
        self.count = size * 8 // element.bitwidth
        super().__init__(f"Lanes({element}, {size})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        whole = vector_of(kind.element, kind.count)
        super().__init__(manager, kind, whole)  # type: ignore[no-untyped-call]


def vector_of(element: Any, count: int) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if element == types.float32 else ir.DoubleType(), count)


def is_single(kind: Any) -> bool:
    """Whether a type is of float32, numbers or lanes."""
    return bool(getattr(kind, "element", kind) == types.float32)


def integers_like(kind: Any) -> tuple[Any, int]:
    """The integers of the size of LLVM's ``kind``, and how many lanes it has (0 for a number)."""
    count = kind.count if isinstance(kind, ir.VectorType) else 0
    single = isinstance(kind.element if count else kind, ir.FloatType)
    integer = ir.IntType(32 if single else 64)
    return (ir.VectorType(integer, count) if count else integer), count


def _kind(*kinds: Any) -> Any:
    """The type of the result: a vector if any operand is one."""
    return next((kind for kind in kinds if isinstance(kind, Lanes)), kinds[0])


def spread(builder: Any, value: Any, kind: Any) -> Any:
    """A number in all lanes."""
    if not isinstance(kind, Lanes) or isinstance(value.type, ir.VectorType):
        return value
    whole = vector_of(kind.element, kind.count)
    if value.type != whole.element:
        value = builder.fptrunc(value, whole.element)
    integer = ir.IntType(32)
    one = builder.insert_element(ir.Constant(whole, ir.Undefined), value, ir.Constant(integer, 0))
    places = ir.Constant(ir.VectorType(integer, kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, ir.Constant(whole, ir.Undefined), places)


def lanewise(kinds: tuple[Any, ...], make: Callable[..., Any]) -> Any:
    """Signature and code of an operation that ``make`` does to values of one type."""
    kind = _kind(*kinds)

    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return make(builder, *(spread(builder, value, kind) for value in args))

    return kind(*kinds), generate


def call_own(builder: Any, name: str, *args: Any, **flags: Any) -> Any:
    """Call one of LLVM's own functions for this type."""
    kind = args[0].type
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    short = "f32" if isinstance(element, ir.FloatType) else "f64"
    lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    full = f"llvm.{name}.{lanes}{short}"
    module = builder.module
    function = module.globals.get(full)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind] * len(args)), full)
    return builder.call(function, args, **flags)


def _operator(name: str) -> Any:
    """An intrinsic for one of the operators."""

    def typed(_context: Any, a: Any, b: Any) -> Any:
        return lanewise((a, b), lambda builder, a, b: getattr(builder, name)(a, b))

    return intrinsic(typed)


def _support(symbol: Any, name: str) -> None:
    """Let compiled code write an operator between vectors and numbers."""
    compute = _operator(name)

    def typed(a: Any, b: Any) -> Any:
        def compiled(a: Any, b: Any) -> Any:
            return compute(a, b)

        return compiled if isinstance(a, Lanes) or isinstance(b, Lanes) else None

    overload(symbol, inline="never")(typed)


@intrinsic
def _negative(_context: Any, a: Any) -> Any:
    return lanewise((a,), lambda builder, a: builder.fneg(a))


@overload(operator.neg)
def _negative_lanes(a: Any) -> Any:
    def compiled(a: Any) -> Any:
        return _negative(a)

    return compiled if isinstance(a, Lanes) else None


for _symbol, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _support(_symbol, _name)


@intrinsic
def lane_count(_context: Any, like: Any) -> Any:
    """How many numbers in the precision of ``like`` a vector has, known when compiled."""
    count = Lanes(like).count
    return types.intp(like), lambda ctx, _builder, _sig, _args: ctx.get_constant(types.intp, count)


@intrinsic
def lanes_of(_context: Any, value: Any) -> Any:
    """A number in all lanes."""
    kind = Lanes(value)
    return kind(value), lambda _ctx, builder, _sig, args: spread(builder, args[0], kind)


@intrinsic
def all_below(_context: Any, a: Any, b: Any) -> Any:
    """Whether a < b in all lanes."""

    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        bits = ir.IntType(a.count)
        below = builder.bitcast(builder.fcmp_ordered("<", *args), bits)
        return builder.icmp_unsigned("==", below, ir.Constant(bits, 2**a.count - 1))

    return types.boolean(a, b), generate
