"""Numbers that depend on weights only, kept for as long as the weights stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

_KEPT: Any = WeakTensorKeyDictionary()


def cached(what: str, tensors: tuple[torch.Tensor, ...], compute: Callable[[], Any]) -> Any:
    """``compute()``, or what it gave for the same content of the same tensors.

    The key is the parameter itself (of which a tensor may be a view), its version, and a checksum:
    writes through ``.data`` leave the version as it was.
    """
    first = tensors[0]
    owner = first._base if first._base is not None else first
    kept = _KEPT.setdefault(owner, {})
    key = (what, tuple(_identity(tensor) for tensor in tensors))
    if key not in kept:
        stale = [old for old in kept if _place(old) == _place(key)]
        for old in stale:
            del kept[old]
        kept[key] = compute()
    return kept[key]


def _place(key: tuple[str, tuple[tuple[Any, ...], ...]]) -> tuple[Any, ...]:
    """A key without the content of the tensors."""
    return key[0], tuple(identity[:-2] for identity in key[1])


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, its shape, version and checksum."""
    version = 0 if tensor.is_inference() else tensor._version
    return (
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.stride(),
        str(tensor.dtype),
        str(tensor.device),
        version,
        checksum(tensor),
    )


def checksum(tensor: torch.Tensor) -> int:
    """Sum of the bits, as whole numbers: it reads the tensor once."""
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.detach()
    if not flat.is_contiguous():
        flat = flat.mT if flat.ndim >= 2 and flat.mT.is_contiguous() else flat.contiguous()
    return int(flat.view(whole[flat.element_size()]).sum(dtype=torch.int64).item())
