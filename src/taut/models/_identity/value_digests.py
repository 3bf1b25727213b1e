"""Digests of whatever a model holds: plain values, tensors, functions and objects."""

from __future__ import annotations

import dataclasses
import enum
import functools
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from taut.models._identity.source_files import is_own
from taut.models._identity.tensor_digests import UnreadableError, combined_digest, tensor_digest

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.layout)


class ValueDigests:
    """Digests of values; modules of the model count by their names, as they are covered elsewhere.

    Objects of the user's own classes count by their content, other objects by their type; with
    ``strict`` the latter are unreadable. ``configuration`` gives the settings of an object that has
    ``to_dict``, and ``functions`` collects the modules in which functions and classes were found.
    """

    def __init__(
        self, known: Mapping[int, str], configuration: Callable[[Any], Any], *, strict: bool = False
    ) -> None:
        self._known, self._configuration, self._strict = known, configuration, strict
        self._open: set[int] = set()
        self._read: dict[int, bytes] = {}  # modules share their configurations
        self.functions: set[str] = set()

    def __call__(self, value: Any) -> bytes:
        if isinstance(value, _PLAIN):
            return combined_digest(type(value).__name__.encode(), repr(value).encode())
        if isinstance(value, torch.device):
            return combined_digest(b"device", value.type.encode())  # each process has its own
        if id(value) in self._known:
            return combined_digest(b"module", self._known[id(value)].encode())
        if id(value) in self._open:
            return combined_digest(b"circle")
        self._open.add(id(value))
        try:
            return combined_digest(type(value).__qualname__.encode(), *self._inside(value))
        finally:
            self._open.discard(id(value))

    def _inside(self, value: Any) -> list[bytes]:
        if isinstance(value, torch.Tensor):
            return [tensor_digest(value)]
        if isinstance(value, torch.Generator):
            return [tensor_digest(value.get_state())]
        if isinstance(value, (np.ndarray, np.generic)):
            held = np.asarray(value)
            content = pickle.dumps(held.tolist()) if held.dtype.hasobject else held.tobytes()
            return [str((held.dtype, held.shape)).encode(), content]
        if isinstance(value, Mapping):
            return sorted(combined_digest(self(key), self(item)) for key, item in value.items())
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted(self(item) for item in value)
        if isinstance(value, enum.Enum):
            return [value.name.encode()]
        if isinstance(value, Path):
            return [value.name.encode()]  # the folder may be moved
        return self._object(value)

    def _object(self, value: Any) -> list[bytes]:
        if isinstance(value, functools.partial):
            return [self(value.func), self(value.args), self(value.keywords)]
        if isinstance(value, MethodType):
            return [self(value.__func__), self(value.__self__)]
        if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
            module = value.__module__ or ""
            self.functions.add(module)
            inside = [module.encode(), value.__qualname__.encode()]
            if isinstance(value, FunctionType):
                inside += [self(value.__defaults__), self(value.__kwdefaults__)]
                inside += [self(_content(cell)) for cell in value.__closure__ or ()]
                inside += _body(value.__code__)
            return inside
        if callable(getattr(value, "to_dict", None)):
            if id(value) not in self._read:
                self._read[id(value)] = self(self._configuration(value))
            return [self._read[id(value)]]
        kind = type(value)
        self.functions.add(kind.__module__)
        simple = dataclasses.is_dataclass(value) or isinstance(value, (SimpleNamespace, nn.Module))
        if hasattr(value, "__dict__") and (simple or is_own(kind.__module__)):
            return [self(vars(value))]
        if self._strict:
            raise UnreadableError(f"a {kind.__qualname__} cannot be read")
        return []


def _body(code: CodeType) -> list[bytes]:
    """Tells apart the lambdas of one line, whose text is covered by the digest of the file."""
    inside = [part for c in code.co_consts if isinstance(c, CodeType) for part in _body(c)]
    plain = [c for c in code.co_consts if isinstance(c, _PLAIN)]
    return [code.co_code, repr((code.co_names, plain)).encode(), *inside]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is still empty
        return None
