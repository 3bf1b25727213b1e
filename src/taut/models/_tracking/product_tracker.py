"""Which keys the scores of a softmax came from, and by what factor.

Scores are a product of queries and keys, scaled, with masks and biases added. Following the product
through these steps gives the keys that the affinity bound needs. Whatever else happens to scores
ends the trail, and so does anything that is added to them and might depend on the query: then
nothing is claimed. Masks, and what is made of parameters and whole numbers without a product of
matrices (tables of biases, positions), do not depend on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from taut.models._tracking.key_product import Product, version
from taut.models._tracking.operations import changes, op_name, tensors_in, views
from taut.models._tracking.storages import storage_key
from taut.models.masks import HIDDEN
from taut.models.score_blocks import FusedScores

_PRODUCTS = ("bmm", "baddbmm")
_COPIES = ("clone", "_to_copy", "contiguous", "_unsafe_view", "detach", "alias", "lift_fresh")
_BENDS = ("tanh", "clamp", "clamp_min", "clamp_max", "hardtanh")  # slopes between 0 and 1
# Each of these may make something depend on the query that did not before.
_MIXES = ("mm", "addmm", "mv", "addmv", "dot", "convolution", "linear", "_cdist_forward", "einsum")


class _Trail(NamedTuple):
    """What is known about a storage: constant, scores of a product, or a multiple of something."""

    alive: StorageWeakRef
    constant: bool = False
    product: Product | None = None
    scale: float | None = None  # by which numbers an otherwise unknown tensor was multiplied


class ProductTracker:
    """Follows products through a forward pass, by the storages of tensors."""

    def __init__(self, model: nn.Module) -> None:
        self._trails: dict[int, _Trail] = {}
        for weight in (*model.parameters(), *model.buffers()):
            if weight.layout is torch.strided:
                self._set(weight, constant=True)

    def of(self, scores: torch.Tensor) -> Product | None:
        """The product that a tensor of scores came from, if nothing else is in it."""
        trail = self._get(scores)
        product = trail.product if trail and scores.is_contiguous() else None
        return product if product and product.known else None

    def of_fused(self, query: torch.Tensor, scores: FusedScores) -> Product | None:
        """The product inside fused attention, if its bias does not depend on the query."""
        if scores.bias is not None and not self.fixed(scores.bias):
            return None
        before = self._get(query)
        factor = before.scale if before and before.scale is not None else 1.0
        keys = scores.key.flatten(0, 1).transpose(1, 2)
        return Product(keys, version(keys), abs(factor * scores.factor), False)

    def note(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note one operation of PyTorch."""
        if views(function):
            return  # the same storage
        name = op_name(function)
        found = list(tensors_in((result,)))
        given = list(tensors_in((*args, *kwargs.values())))
        if changes(function):
            written = found or given
            for tensor in written:
                if not _whole(tensor) or len(written) > 1 or not found or "out" in kwargs:
                    self._set(tensor)
            if len(written) > 1 or not found or not _whole(written[0]) or "out" in kwargs:
                return
        for tensor in found:
            self._follow(name, args, kwargs, given, tensor)

    def _follow(self, name: str, args: Any, kwargs: Any, given: Any, result: Any) -> None:
        if name in _PRODUCTS:
            self._forget_dead()
            self._set(result, product=self._multiply(name, args, kwargs))
        elif all(map(self.fixed, given)):
            self._set(result, constant=name not in _MIXES)
        elif not result.is_floating_point() or name in _MIXES:
            self._set(result)
        elif name in ("mul", "div") and not kwargs and (by := self._number(args[1])) is not None:
            self._rescale(args[0], result, by if name == "mul" else 1 / by if by else 0.0)
        elif name == "copy":
            self._copy(args[1], result)
        elif name in _COPIES:
            self._copy(given[0], result)
        else:
            self._set(result, product=self._step(name, args, kwargs, given))

    def _multiply(self, name: str, args: Any, kwargs: Any) -> Product | None:
        """What comes out of a product of matrices."""
        queries, keys = args[:2] if name == "bmm" else args[1:3]
        before = self._get(queries)
        factor = before.scale if before and before.scale is not None else 1.0
        if name == "baddbmm":
            if not self.fixed(args[0]):
                return None
            factor *= float(kwargs.get("alpha", 1))
        if keys.is_inference():  # these do not tell when they are changed
            keys = keys.clone()
        return Product(keys, version(keys), abs(factor), False)

    def _rescale(self, given: Any, result: torch.Tensor, by: float) -> None:
        trail = self._get(given)
        if trail is not None and trail.product is not None and given.is_contiguous():
            factor = trail.product.factor * abs(by)
            self._set(result, product=trail.product._replace(factor=factor))
        elif trail is None or trail.product is None:
            known = trail.scale if trail is not None and trail.scale is not None else 1.0
            self._set(result, scale=known * abs(by))
        else:
            self._set(result)

    def _copy(self, given: torch.Tensor, result: torch.Tensor) -> None:
        trail = self._get(given)
        if trail is None or (trail.product is not None and not given.is_contiguous()):
            self._set(result)
        else:
            self._set(result, trail.constant, trail.product, trail.scale)

    def _step(self, name: str, args: Any, kwargs: Any, given: Any) -> Product | None:
        """A step from scores to scores, or None: something that is not known to keep the bound."""
        known = [t for t in given if not self.fixed(t)]
        product = self.of(known[0])
        if product is None or kwargs.get("alpha", 1) != 1:
            return None
        if name in ("add", "sub") and all(self._shifts(t, known[0]) for t in known[1:]):
            return product
        if len(known) > 1:
            return None  # a second term that may depend on the query
        if name == "masked_fill" and (self._number(args[2]) or 0.0) < HIDDEN:
            return product
        if name in (*_BENDS, "masked_fill", "where", "cat"):
            return product._replace(bent=True)
        return None

    def _shifts(self, term: torch.Tensor, scores: torch.Tensor) -> bool:
        """Whether a term is one number a row, which no softmax over the keys sees."""
        product = self.of(scores)
        keys = 0 if product is None else product.keys.shape[-1]
        return term.shape[-1:] == (1,) and scores.shape[-1] - keys in (0, 1)

    def fixed(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor depends on no query: made of parameters, whole numbers and masks."""
        trail = self._get(tensor)
        if trail is not None:
            return trail.constant
        if tensor.layout is not torch.strided:
            return False
        constant = not tensor.is_floating_point() or tensor.ndim == 0 or _is_mask(tensor)
        self._set(tensor, constant=constant)
        return constant

    def _number(self, value: Any) -> float | None:
        """A plain number, also one in a constant tensor of no dimensions on the host."""
        if isinstance(value, (int, float)):
            return float(value)
        plain = isinstance(value, torch.Tensor) and value.ndim == 0 and value.device.type == "cpu"
        return float(value) if plain and self.fixed(value) else None

    def _get(self, tensor: Any) -> _Trail | None:
        trail = self._trails.get(storage_key(tensor))
        dead = trail is None or trail.alive.expired()  # type: ignore[no-untyped-call]
        return None if dead else trail

    def _set(
        self,
        tensor: torch.Tensor,
        constant: bool = False,
        product: Product | None = None,
        scale: float | None = None,
    ) -> None:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            self._trails[storage._cdata] = _Trail(alive, constant, product, scale)

    def _forget_dead(self) -> None:
        dead = [key for key, trail in self._trails.items() if trail.alive.expired()]  # type: ignore[no-untyped-call]
        for key in dead:
            del self._trails[key]


def _is_mask(tensor: torch.Tensor) -> bool:
    """Whether a tensor from outside hides some keys and is 0 elsewhere, as no query is."""
    hides = tensor < HIDDEN
    return bool(hides.any() and (hides | (tensor == 0)).all())


def _whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    if tensor.layout is not torch.strided:
        return False
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
