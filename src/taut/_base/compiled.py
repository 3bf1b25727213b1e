"""Compile for the machine at hand, once: numba's cache keeps the result where it can be written.

numba knows what it compiled by the file of the outermost function alone. That of an older taut, or
of sources since edited, would be loaded although the functions it calls, their constants or the
options below have changed. So a hash of all sources that can matter is part of the function's name.
"""

from __future__ import annotations

import ast
import hashlib
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba

ROOT = Path(__file__).parents[1]


def compiled(
    function: Callable[..., Any], *signature: Any, fastmath: set[str] | bool = False
) -> Callable[..., Any]:
    """The function compiled to run without the interpreter lock, cached on disk if possible."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    result: Callable[..., Any]
    try:
        named = _named(function)
        result = numba.njit(*signature, cache=True, **options)(named)  # type: ignore[call-overload]
    except (OSError, RuntimeError) as error:  # no sources to tell versions by, or nowhere to write
        if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
            raise
        result = numba.njit(*signature, **options)(function)
    return result


def compiled_callback(function: Callable[..., Any], signature: Any) -> Any:
    """The same as a function that code of other languages can call, with its ``address``."""
    options: dict[str, Any] = {"error_model": "numpy"}
    try:
        return numba.cfunc(signature, cache=True, **options)(_named(function))
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
            raise
        return numba.cfunc(signature, **options)(function)


def _named(function: Any) -> Any:
    """The same function with the hash of its sources in its name, by which numba keeps it."""
    code = function.__code__
    named: Any = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    named.__qualname__ = f"{function.__qualname__}_{digest(Path(code.co_filename))}"
    named.__module__ = function.__module__
    return named


@cache
def digest(file: Path) -> str:
    """A hash of a source file, of all files of taut that it imports, and of how it is compiled."""
    found = {Path(__file__), file}
    new = [file]
    while new:
        reached = set(_imported(new.pop())) - found
        found |= reached
        new += reached
    content = hashlib.blake2b(digest_size=8)
    for each in sorted(found):
        text = each.read_bytes()
        content.update(f"{each.name} {len(text)} ".encode() + text)
    return content.hexdigest()


def _imported(file: Path) -> Iterator[Path]:
    """Files of taut that a file imports anything from."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for parts in (name.split(".") for name in names if name.startswith("taut.")):
            place = ROOT.joinpath(*parts[1:])
            yield from (p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file())
