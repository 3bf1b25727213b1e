"""Numbers that depend on weights only, kept under the content of the weights.

Neither the address of a tensor nor its version says what is in it: writes through ``.data`` and in
inference mode change neither, and memory is reused. So the key is a hash of the bytes, computed at
every lookup. No entry can be stale; only what costs more than hashing is worth keeping.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import torch

LIMIT = 1 << 14  # numbers that are kept, the latest
_KEPT: dict[Any, float] = {}
_LOCK = threading.Lock()


def cached(what: str, tensors: tuple[torch.Tensor, ...], compute: Callable[..., float]) -> float:
    """``compute(*tensors)``, or what it gave for tensors with the same content."""
    if not all(map(_readable, tensors)):
        return compute(*tensors)
    key = _key(what, tensors)
    if key not in _KEPT:
        # Of a copy, so that a thread that trains meanwhile cannot put its weights under this key.
        own = tuple(tensor.detach().clone() for tensor in tensors)
        key, value = _key(what, own), compute(*own)
        with _LOCK:
            _KEPT[key] = value
            while len(_KEPT) > LIMIT:
                del _KEPT[next(iter(_KEPT))]
        return value
    return _KEPT[key]


def _readable(tensor: torch.Tensor) -> bool:
    """Whether the bytes are all there is to a tensor: not so in subclasses, sparse or quantised."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.layout is torch.strided and not tensor.is_quantized


def _key(what: str, tensors: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    return what, *(
        (str(tensor.dtype), str(tensor.device), tuple(tensor.shape), content(tensor))
        for tensor in tensors
    )


def content(tensor: torch.Tensor) -> bytes:
    """A cryptographic hash of the entries in their order, however they lie in memory."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    flat = plain.as_strided((plain.numel(),), (1,))  # a single entry may have any stride
    return hashlib.blake2b(flat.view(torch.uint8).numpy().data, digest_size=32).digest()
