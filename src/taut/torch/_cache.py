"""Numbers that depend on weights only, kept for as long as the weights stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

CHUNK = 1 << 20
_KEPT: Any = WeakTensorKeyDictionary()
_TAKEN: dict[Any, int] | None = None


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
    owner = tensor if tensor._base is None else tensor._base  # of several views, read once
    return (
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.stride(),
        str(tensor.dtype),
        str(tensor.device),
        0 if owner.is_inference() else owner._version,
        checksum(owner),
    )


def checksum(tensor: torch.Tensor) -> int:
    """Sum of the bits as whole numbers, each times an odd number of its place, modulo 2^64."""
    if _TAKEN is not None:
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in _TAKEN:
            _TAKEN[key] = _sum(tensor)
        return _TAKEN[key]
    return _sum(tensor)


def _sum(tensor: torch.Tensor) -> int:
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.detach()
    if not flat.is_contiguous():
        flat = flat.mT if flat.ndim >= 2 and flat.mT.is_contiguous() else flat.contiguous()
    bits = flat.reshape(-1).view(whole[flat.element_size()])
    places = 2 * torch.arange(min(CHUNK, len(bits)), device=bits.device) + 1
    places = places * 0x1E3779B97F4A7C15  # wraps around, and stays odd
    total = 0
    for start in range(0, len(bits), CHUNK):
        part = bits[start : start + CHUNK]
        here = int((part.to(torch.int64) * places[: len(part)]).sum().item())
        total = (total * 0x100000001B3 + here) % (1 << 64)
    return total


@contextmanager
def reading() -> Iterator[None]:
    """Nothing changes weights meanwhile: their checksums are taken once."""
    global _TAKEN
    before, _TAKEN = _TAKEN, {}
    try:
        yield
    finally:
        _TAKEN = before
