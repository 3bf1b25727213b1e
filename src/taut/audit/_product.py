"""Which keys the scores of a softmax came from, and by what factor.

Scores are a product of queries and keys, scaled, with masks and biases added. Following the product
through these steps gives the keys that the affinity bound needs. Any other step, and any addition
of something that may itself depend on the query, ends the trail: then nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

NO_WEIGHT = -1e30  # a score that gives its key no weight, whatever the others are
_PRODUCTS = ("bmm", "baddbmm")
_LINEAR = ("mm", "addmm", "embedding")  # a linear layer: what comes out is a new beginning
_COPIES = ("clone", "_to_copy", "contiguous", "_unsafe_view", "expand", "detach", "alias", "copy")
_BENDS = ("tanh", "clamp", "clamp_min", "clamp_max", "hardtanh")  # slopes between 0 and 1


class Product(NamedTuple):
    """Where scores came from: factor·⟨query, key⟩ and terms that do not depend on the query."""

    keys: torch.Tensor  # (batch, width, keys), the right factor of the product
    factor: float
    bent: bool  # through slopes in [0, 1], or beside a constant score: as if 0 were a key too


class _Trail(NamedTuple):
    """What is known about a storage; ``product`` is None where it depends on one unknown to us."""

    alive: StorageWeakRef
    product: Product | None
    scale: float | None  # of a tensor that is no product: by which numbers it was multiplied


class Products:
    """Follows products through a forward pass, by the storages of tensors."""

    def __init__(self) -> None:
        self._trails: dict[int, _Trail] = {}

    def of(self, tensor: torch.Tensor) -> Product | None:
        """The product that a tensor of scores came from, if nothing else is in it."""
        trail = self._get(tensor)
        return trail.product if trail else None

    def note(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take in one operation of PyTorch."""
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if not isinstance(first, torch.Tensor) or not first.is_floating_point():
            return
        name = function.overloadpacket.__name__.removesuffix("_")
        changes = function._schema.is_mutable
        if not changes and any(_key(t) == _key(first) for t in _tensors(args)):
            return  # a view: the same storage
        if name in _PRODUCTS:
            self._forget_dead()
            self._set(first, self._multiply(name, args, kwargs), None)
        elif name in _LINEAR:
            self._trails.pop(_key(first), None)
        elif changes and not _whole(first):
            self._set(first, None, None)
        else:
            self._follow(name, args, first)

    def _follow(self, name: str, args: Any, result: torch.Tensor) -> None:
        trails = [trail for t in _tensors(args) if (trail := self._get(t)) is not None]
        scale = _number(args[1]) if name in ("mul", "div") else None
        if scale is not None:
            self._rescale(args[0], result, scale if name == "mul" else 1 / scale if scale else 0.0)
        elif name in _COPIES and trails:
            self._set(result, trails[0].product, trails[0].scale)
        elif any(trail.scale is None for trail in trails):
            self._set(result, self._step(name, args), None)
        else:
            self._trails.pop(_key(result), None)

    def _multiply(self, name: str, args: Any, kwargs: Any) -> Product | None:
        """What comes out of a product of matrices."""
        queries, keys = args[-2:] if name == "bmm" else args[1:3]
        before = self._get(queries)
        factor = before.scale if before and before.scale is not None else 1.0
        if name == "baddbmm":
            if self._depends(args[0]):
                return None
            factor *= float(kwargs.get("alpha", 1))
        return Product(keys.detach(), abs(factor), False)

    def _rescale(self, given: Any, result: torch.Tensor, scale: float) -> None:
        trail = self._get(given)
        if trail is None:
            self._set(result, None, abs(scale))
        elif trail.scale is not None:
            self._set(result, None, trail.scale * abs(scale))
        else:
            known = trail.product
            self._set(result, known and known._replace(factor=known.factor * abs(scale)), None)

    def _step(self, name: str, args: Any) -> Product | None:
        """A step from scores to scores, or None: something that is not known to keep the bound."""
        tensors = list(_tensors(args))
        known = [t for t in tensors if self._depends(t)]
        product = self.of(known[0])
        if product is None:
            return None
        others = [t for t in tensors if t is not known[0]]
        if any(self._depends(t) and t.shape[-1:] != (1,) for t in others):
            return None  # a second term that depends on the query; one number a row is a shift
        if name in ("add", "sub"):
            return product
        if name == "masked_fill" and (_number(args[2]) or 0.0) < NO_WEIGHT:
            return product
        if name in (*_BENDS, "masked_fill", "where", "cat"):
            return product._replace(bent=True)
        return None

    def _depends(self, tensor: Any) -> bool:
        trail = self._get(tensor)
        return trail is not None and trail.scale is None

    def _get(self, tensor: Any) -> _Trail | None:
        trail = self._trails.get(_key(tensor))
        dead = trail is None or trail.alive.expired()  # type: ignore[no-untyped-call]
        return None if dead else trail

    def _set(self, tensor: torch.Tensor, product: Product | None, scale: float | None) -> None:
        storage = tensor.untyped_storage()
        alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self._trails[storage._cdata] = _Trail(alive, product, scale)

    def _forget_dead(self) -> None:
        dead = [key for key, trail in self._trails.items() if trail.alive.expired()]  # type: ignore[no-untyped-call]
        for key in dead:
            del self._trails[key]


def _key(tensor: Any) -> int:
    return tensor.untyped_storage()._cdata if isinstance(tensor, torch.Tensor) else -1


def _whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    for value in args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _number(value: Any) -> float | None:
    """A plain number, also one in a tensor of no dimensions on the host."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.ndim == 0 and value.device.type == "cpu":
        return float(value)
    return None
