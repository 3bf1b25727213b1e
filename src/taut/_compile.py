"""Compile for the machine at hand, once: numba's cache keeps the result where it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(
    function: Callable[..., Any], *signature: Any, fastmath: set[str] | bool = False
) -> Callable[..., Any]:
    """The function compiled to run without the interpreter lock, cached on disk if possible."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    result: Callable[..., Any]
    try:
        result = numba.njit(*signature, cache=True, **options)(function)  # type: ignore[call-overload]
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        result = numba.njit(*signature, **options)(function)
    return result
