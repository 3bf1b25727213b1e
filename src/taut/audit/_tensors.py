"""What an operation of PyTorch is called, and which tensors it takes or gives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

T = TypeVar("T")


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """All tensors among values, also in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


@cache
def changes(function: Any) -> bool:
    """Whether an operation writes into what it is given."""
    return bool(function._schema.is_mutable)


@cache
def views(function: Any) -> bool:
    """Whether what comes out is another view of what is given."""
    schema = function._schema
    return not schema.is_mutable and any(out.alias_info is not None for out in schema.returns)


@cache
def op_name(function: Any) -> str:
    """The name without the overload, and without the mark of those that write."""
    return str(function.overloadpacket.__name__).removesuffix("_")


def storage(tensor: Any) -> int:
    """The address of a tensor's storage; -1 for what has none."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return -1
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # a tensor of torch.func, which has no memory of its own
        return -1


def storage_key(tensor: Any) -> int:
    """The number of a tensor's storage, which another may get when it is gone; -1 without one."""
    strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return tensor.untyped_storage()._cdata if strided else -1


class ByStorage(Generic[T]):
    """Values for tensors by their storages, for as long as those are in use."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[StorageWeakRef, T]] = {}

    def get(self, tensor: Any) -> T | None:
        """What was kept for the storage of a tensor, or None."""
        found = self._kept.get(storage_key(tensor))
        return None if found is None or _dead(found[0]) else found[1]

    def set(self, tensor: Any, value: T) -> None:
        """Keep a value; those of storages that are gone are dropped."""
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            kept = {key: found for key, found in self._kept.items() if not _dead(found[0])}
            whole = tensor.untyped_storage()
            kept[whole._cdata] = (StorageWeakRef(whole), value)  # type: ignore[no-untyped-call]
            self._kept = kept

    def drop(self, tensor: torch.Tensor) -> None:
        """Forget a storage."""
        self._kept.pop(storage_key(tensor), None)

    def clear(self) -> None:
        """Drop everything."""
        self._kept = {}


def _dead(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]
