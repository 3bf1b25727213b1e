"""Digests of tensors, wherever and however they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

SIZE = 16  # bytes of a digest


class UnreadableError(ValueError):
    """The content of something cannot be read."""


def combined_digest(*parts: bytes | memoryview) -> bytes:
    """One digest of several parts, which depends on where each part ends."""
    digest = hashlib.blake2b(digest_size=SIZE)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def tensor_digest(tensor: torch.Tensor) -> bytes:
    """Digest type, shape and numbers of a tensor, be it float8, quantised, sparse or sharded."""
    return combined_digest(*_pieces(tensor.detach()))


def _pieces(tensor: torch.Tensor) -> Iterator[bytes | memoryview]:
    yield f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout}".encode()
    if hasattr(tensor, "to_local"):  # the shard of this process
        yield str(getattr(tensor, "placements", "")).encode()
        yield from _pieces(tensor.to_local())
    elif hasattr(tensor, "__tensor_flatten__"):  # made of plain tensors, as torchao's
        names, context = tensor.__tensor_flatten__()
        yield repr(context).encode()
        for name in names:
            yield from _pieces(getattr(tensor, name))
    elif tensor.device.type == "meta":
        raise UnreadableError("its numbers are not in memory")
    elif tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        yield from _pieces(tensor.indices())
        yield from _pieces(tensor.values())
    else:
        try:
            dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
            flat = dense.resolve_conj().resolve_neg().cpu().contiguous().flatten()
            yield flat.view(torch.uint8).numpy().data  # no copy: weights are large
        except (RuntimeError, TypeError) as error:
            raise UnreadableError(f"{tensor.dtype} cannot be read: {error}") from None


class WeightDigests:
    """Digests of the tensors of a model by name; those that cannot be read are in ``unknown``."""

    def __init__(self, model: nn.Module, tensors: dict[str, Any]) -> None:
        self.found: dict[str, bytes] = {}
        self.unknown: dict[str, str] = {}
        waiting = [key for key, tensor in tensors.items() if _waits(tensor)]
        late = dict(_offloaded(model, waiting))
        tied: dict[Any, bytes] = {}
        for key, tensor in tensors.items():
            plain = type(tensor) in (torch.Tensor, nn.Parameter) and not _waits(tensor)
            plain = plain and tensor.layout == torch.strided
            at = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if plain else key
            try:
                digest = late.get(key) or tied.get(at) or tensor_digest(tensor)
            except UnreadableError as error:
                self.unknown[key] = str(error)
                continue
            self.found[key] = tied[at] = digest


def _waits(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def _offloaded(model: nn.Module, wanted: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Digests of weights that accelerate keeps on disk, with one module in memory at a time."""
    places: dict[str, list[str]] = {}
    for key in wanted:
        place, _, name = key.rpartition(".")
        places.setdefault(place, []).append(name)
    for place, names in places.items():
        module = model.get_submodule(place)
        hook = getattr(module, "_hf_hook", None)
        if hook is None or not getattr(hook, "offload", False):
            continue
        from accelerate.utils import align_module_device

        with align_module_device(module, torch.device("cpu")):
            for name in names:
                value = getattr(module, name)
                if not _waits(value):
                    yield f"{place}.{name}" if place else name, tensor_digest(value)
