"""The kernels as compiled code calls them that XLA calls: by their address, not compiled anew."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from taut._base.compiled_links import call_of, link
from taut._softmax.kernel.signatures import (
    careful_gradients_compiled,
    constants_compiled,
    gradients_compiled,
)


@intrinsic
def constants(_context: Any, arguments: Any) -> Any:
    """``fill_constants`` of a tuple of its arguments."""
    return call_of(*_kernels(_char(arguments[0]))[0], arguments)


@intrinsic
def gradients(_context: Any, arguments: Any) -> Any:
    """``fill_gradients`` of a tuple of its arguments."""
    return call_of(*_kernels(_char(arguments[0]))[1], arguments)


@intrinsic
def careful_gradients(_context: Any, arguments: Any) -> Any:
    """``fill_careful_gradients`` of a tuple of its arguments."""
    return call_of(*_kernels(_char(arguments[0]))[2], arguments)


def _kernels(char: str) -> list[tuple[str, Any]]:
    """The kernels, the very code that is called from Python, and the names to find them by."""
    return [
        (f"taut_constants_{char}", constants_compiled(char)),
        (f"taut_gradients_{char}", gradients_compiled(char)),
        (f"taut_careful_gradients_{char}", careful_gradients_compiled(char)),
    ]


def _char(x: Any) -> str:
    return "f" if x.dtype == types.float32 else "d"


def link_kernels(char: str) -> None:
    """Let compiled code find the kernels of one precision; must come before it is loaded."""
    for symbol, kernel in _kernels(char):
        link(symbol, kernel)
