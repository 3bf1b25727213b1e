"""What compiled code needs when another runtime than Python calls it: its memory and its modes."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_INTEL = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
_ARM = platform.machine().lower() in ("aarch64", "arm64")
_MODE = ir.IntType(32) if _INTEL else ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()
# Of the modes: rounding to nearest, subnormal numbers kept, nothing raised
_PLAIN = 0x1F80 if _INTEL else 0
MODES_ARE_KNOWN = _INTEL or _ARM


@intrinsic
def memory(_context: Any, address: Any) -> Any:
    """The memory at an address, for ``numba.carray``."""

    def make(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        return builder.inttoptr(args[0], kind)

    return types.voidptr(types.intp), make


@intrinsic
def plain_arithmetic(_context: Any) -> Any:
    """Arithmetic from here on is as in Python; returns the modes before, for ``set_arithmetic``.

    XLA lets its threads read and write subnormal numbers as 0, which the kernels are not made for.
    """

    def make(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        before = _read_modes(builder)
        _write_modes(builder, ir.Constant(_MODE, _PLAIN))
        return builder.zext(before, ir.IntType(64)) if _INTEL else before

    return types.uint64(), make


@intrinsic
def set_arithmetic(_context: Any, modes: Any) -> Any:
    """Arithmetic from here on is as it was when ``plain_arithmetic`` returned these modes."""

    def make(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        _write_modes(builder, builder.trunc(args[0], _MODE) if _INTEL else args[0])
        return context.get_dummy_value()

    return types.void(types.uint64), make


def _read_modes(builder: Any) -> Any:
    if _INTEL:
        place = builder.alloca(_MODE)
        _call(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), builder.bitcast(place, _BYTES))
        return builder.load(place)
    return _call(builder, "llvm.aarch64.get.fpcr", _MODE)


def _write_modes(builder: Any, modes: Any) -> None:
    if _INTEL:
        place = builder.alloca(_MODE)
        builder.store(modes, place)
        _call(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), builder.bitcast(place, _BYTES))
    else:
        _call(builder, "llvm.aarch64.set.fpcr", ir.VoidType(), modes)


def _call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call one of LLVM's own functions."""
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = ir.Function(builder.module, kind, name)
    return builder.call(function, args)
