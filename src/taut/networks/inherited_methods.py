"""Whether a module runs the code of the class whose rule it takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from types import CodeType
from typing import Any

from torch import nn

# How torch comes to forward, and how attributes are found on the way.
CALLS = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattr__", "__getattribute__")


def runs_code_of(kind: type, module: nn.Module) -> bool:
    """Whether neither a subclass nor the module itself has another version of such a method."""
    names = (*methods_of(kind), *CALLS)
    below = type(module)
    return below is kind or all(
        inspect.getattr_static(below, name, None) is inspect.getattr_static(kind, name, None)
        for name in names
    )


def replaced_methods(module: nn.Module) -> list[str]:
    """Methods that forward reaches and that were replaced on the module itself."""
    kind: type = type(module)
    return sorted(methods_of(kind) & module.__dict__.keys())


@cache
def methods_of(kind: type) -> frozenset[str]:
    """forward, and all methods and properties of the class that it comes by, by their names."""
    found, todo = set(), ["forward"]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for code in _codes(inspect.getattr_static(kind, name, None)):
            todo += [each for each in _names(code) if _is_method(kind, each)]
    return frozenset(found)


def _is_method(kind: type, name: str) -> bool:
    found = inspect.getattr_static(kind, name, None)
    return any(True for _ in _codes(found))


def _codes(method: Any) -> Iterator[CodeType]:
    """The code of a method, or of a property."""
    if isinstance(method, property):
        yield from _codes(method.fget)
        return
    if isinstance(method, (staticmethod, classmethod)):
        method = method.__func__
    code = getattr(inspect.unwrap(method) if callable(method) else None, "__code__", None)
    if isinstance(code, CodeType):
        yield code


def _names(code: CodeType) -> Iterator[str]:
    """Everything that a code asks objects for, also inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
