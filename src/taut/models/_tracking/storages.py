"""Values that are kept for tensors by their storages, which views and in-place changes share."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

T = TypeVar("T")


def storage(tensor: Any) -> int:
    """The address of a tensor's storage; -1 if it has none."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return -1
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # a tensor of torch.func, which has no memory of its own
        return -1


def storage_key(tensor: Any) -> int:
    """The id of a tensor's storage, which may be used again once it is freed; -1 if it has none."""
    strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return tensor.untyped_storage()._cdata if strided else -1


class ByStorage(Generic[T]):
    """Values for tensors by their storages, kept as long as those are alive."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[StorageWeakRef, T]] = {}

    def get(self, tensor: Any) -> T | None:
        """What was kept for the storage of a tensor, or None."""
        found = self._kept.get(storage_key(tensor))
        return None if found is None or _dead(found[0]) else found[1]

    def set(self, tensor: Any, value: T) -> None:
        """Keep a value, and drop those of storages that were freed."""
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
