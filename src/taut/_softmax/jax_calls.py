"""Compiled code handed to XLA, which calls it without the interpreter."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.ffi
import numpy as np

from taut._base.compiled import digest

_registering = Lock()


def registered(char: str) -> bool:
    """Whether XLA knows the compiled code of one precision; compiles it on first use."""
    with _registering:  # XLA refuses a name that another thread has just registered
        return _register(char)


@lru_cache
def _register(char: str) -> bool:
    from taut._base.compiled_memory import MODES_ARE_KNOWN

    if not MODES_ARE_KNOWN or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    if not hasattr(jax.sharding.NamedSharding, "update"):  # before 0.6.2, and read by primitives
        return False
    from taut._softmax.kernel.xla_calls import handlers

    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    both = handlers(char)
    try:
        for name, handler in zip(("constants", "gradients"), both, strict=True):
            target = capsule(handler.address, None, None)
            jax.ffi.register_ffi_target(_target(name, char), target, platform="cpu")
    except (RuntimeError, ValueError):  # this XLA speaks another version
        return False
    return True


@lru_cache
def _target(name: str, char: str) -> str:
    """The name by which XLA knows compiled code, different for other sources."""
    from taut._softmax.kernel import xla_calls

    try:
        version = digest(Path(xla_calls.__file__))
    except (OSError, SyntaxError, ValueError):  # no sources: then none that change
        version = "installed"
    return f"taut_{name}_{char}_{version}"


def custom_call(name: str, ctx: Any, *operands: Any, numbers: list[float]) -> Any:
    """Lower a primitive to a call of compiled code, which is given some numbers besides."""
    char = ctx.avals_out[0].dtype.char
    lower = jax.ffi.ffi_lowering(_target(name, char))
    return lower(ctx, *operands, numbers=np.array(numbers, np.float64))
