"""Origins of the tensors of a forward pass, by the storages that they are views of."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from taut.models._tracking.origin import NOT_A_TOKEN, Origin


class OriginStore:
    """Origins of the views of one storage."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self._length = storage.nbytes() // tensor.element_size()
        self._views: dict[Any, Origin | None] = {}
        self._flat: Origin | None = None  # of the whole storage, once parts of it were written

    @property
    def dead(self) -> bool:
        """Whether the storage was freed."""
        return bool(self._alive.expired())  # type: ignore[no-untyped-call]

    def get(self, tensor: torch.Tensor) -> Origin | None:
        """The origin of a view."""
        shape, stride, offset = place = _place(tensor)
        if place not in self._views and self._flat is not None:
            return self._flat.moved(lambda part: part.as_strided(shape, stride, offset))
        return self._views.get(place)

    def put(self, tensor: torch.Tensor, origin: Origin | None) -> None:
        """Keep the origin of a view."""
        self._views[_place(tensor)] = origin

    def write(self, tensor: torch.Tensor, origin: Origin) -> None:
        """Note that something was written into a view, which other views see too."""
        shape, stride, offset = _place(tensor)
        if tensor.numel() == self._length or self._length > 1 << 28:  # all of it
            self._views, self._flat = {}, None
            self.put(tensor, origin.expand(shape))
            return
        whole = self.flat(tensor)
        for part, theirs in zip(whole[:4], origin[:4], strict=True):
            if part is not None and theirs is not None:
                part.as_strided(shape, stride, offset).copy_(theirs)
        if origin.other is not None and whole.other is None:
            other = torch.full_like(whole.token, NOT_A_TOKEN)
            other.as_strided(shape, stride, offset).copy_(origin.other)
            whole = whole._replace(other=other)
        self._flat = whole._replace(weights=whole.weights or origin.weights)

    def flat(self, tensor: torch.Tensor) -> Origin:
        """The origin of the whole storage, from what is known of its views."""
        if self._flat is None:
            parts = torch.full((3, self._length), NOT_A_TOKEN, device=tensor.device).unbind(0)
            whole = Origin(parts[0].clone(), parts[1].clone(), parts[2].clone())
            for (shape, stride, offset), origin in self._views.items():
                for part, theirs in zip(whole[:3], (origin or ())[:3], strict=False):
                    part.as_strided(shape, stride, offset).copy_(theirs)
            self._views, self._flat = {}, whole
        return self._flat


def _place(tensor: torch.Tensor) -> Any:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
