"""Operations of PyTorch: their names, the tensors they take, whether they write or view."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """All tensors among values, also in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


@cache
def changes(function: Any) -> bool:
    """Whether an operation writes into its arguments."""
    return bool(function._schema.is_mutable)


@cache
def views(function: Any) -> bool:
    """Whether an operation returns a view of its arguments."""
    schema = function._schema
    return not schema.is_mutable and any(out.alias_info is not None for out in schema.returns)


@cache
def op_name(function: Any) -> str:
    """The name of an operation, without its overload and the underscore of in-place versions."""
    return str(function.overloadpacket.__name__).removesuffix("_")
