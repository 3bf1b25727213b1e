"""Where the entries of a tensor come from: which sample, which token, which feature.

An origin is a few arrays of whole numbers of the tensor's shape. They are kept expanded (with
strides of 0) wherever they do not vary, so that they take next to no memory, and moved as the
entries themselves are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

NOT_A_TOKEN = -1  # such as a learned class token
PADDED = -2  # made by the model itself to fill up a length
FEATURES = 1 << 20  # no layer is wider
GIVEN = 1 << 19  # features of inputs count from here on, those of linear maps from 0
TOKENS = 1 << 24  # no sequence is longer; numbers of tokens are source·TOKENS + position


class Origin(NamedTuple):
    """Origins of all entries of a tensor, each an array of its shape; negative where unknown."""

    sample: torch.Tensor
    token: torch.Tensor
    feature: torch.Tensor
    other: torch.Tensor | None = None  # of products of queries and keys: the key's token
    weights: bool = False  # whether these are weights that a softmax gave

    def moved(self, move: Callable[[torch.Tensor], torch.Tensor]) -> Origin:
        """The origin after all entries were moved alike."""
        other = None if self.other is None else move(self.other)
        return Origin(move(self.sample), move(self.token), move(self.feature), other, self.weights)

    def expand(self, shape: Sequence[int]) -> Origin:
        """Repeated along new or single axes."""
        return self.moved(lambda part: part.expand(shape))

    def reshape(self, shape: Sequence[int]) -> Origin:
        """The same entries in another shape."""
        return self.moved(lambda part: reshape(part, shape))

    def along(self, dim: int) -> Origin:
        """One origin for all entries along an axis, which is dropped.

        The feature is the first one; what else varies is unknown.
        """
        other = None if self.other is None else one_along(self.other, dim)
        return Origin(
            one_along(self.sample, dim), one_along(self.token, dim),
            least(self.feature, dim), other, self.weights,
        )  # fmt: skip


def varies(part: torch.Tensor, dim: int) -> bool:
    """Whether known numbers differ anywhere along an axis."""
    if part.shape[dim] <= 1 or part.stride(dim) == 0 or not part.numel():
        return False
    part = narrowed(part, keep=dim)
    top = part.amax(dim=dim, keepdim=True)
    return bool(((part != top) & (part >= 0)).any())


def ranks(part: torch.Tensor) -> torch.Tensor:
    """Numbers counted from 0 on in their order."""
    small = narrowed(part)
    found: torch.Tensor = torch.unique(small, return_inverse=True)[1]
    return found.reshape(small.shape).expand(part.shape)


def one_along(part: torch.Tensor, dim: int) -> torch.Tensor:
    """The one number along an axis, which is dropped; unknown where there are several."""

    def only(small: torch.Tensor) -> torch.Tensor:
        top = small.amax(dim=dim)
        low = torch.where(small < 0, top.unsqueeze(dim), small).amin(dim=dim)
        return torch.where(low == top, top, NOT_A_TOKEN)

    return _dropped(part, dim, only)


def least(part: torch.Tensor, dim: int) -> torch.Tensor:
    """The smallest number along an axis, which is dropped."""
    return _dropped(part, dim, lambda small: small.amin(dim=dim))


def _dropped(
    part: torch.Tensor, dim: int, reduce: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """One number for an axis, computed only where something varies along it."""
    if part.shape[dim] == 0:
        return part.sum(dim=dim)
    if part.shape[dim] == 1 or part.stride(dim) == 0:
        return part.select(dim, 0)
    shape = [n for i, n in enumerate(part.shape) if i != dim % part.ndim]
    return reduce(narrowed(part, keep=dim)).expand(shape)


def narrowed(part: torch.Tensor, keep: int | None = None) -> torch.Tensor:
    """Length 1 along axes that nothing varies along."""
    kept = None if keep is None else keep % part.ndim
    for dim in range(part.ndim):
        if dim != kept and part.shape[dim] > 1 and part.stride(dim) == 0:
            part = part.narrow(dim, 0, 1)
    return part


def reshape(part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """``part.reshape(shape)``, not copying what is only repeated along axes that stay."""
    old, new = list(part.shape), list(shape)
    last = 0
    while last < min(len(old), len(new)) and old[-1 - last] == new[-1 - last]:
        last += 1
    first = 0
    while first < min(len(old), len(new)) - last and old[first] == new[first]:
        first += 1
    same = [*range(first), *range(len(old) - last, len(old))]
    for dim in same:
        if old[dim] > 1 and part.stride(dim) == 0:
            part = part.narrow(dim, 0, 1)
    sizes = list(part.shape)
    target = [*sizes[:first], *new[first : len(new) - last], *sizes[len(sizes) - last :]]
    return part.reshape(target).expand(new)


def joined(origins: Sequence[Origin | None], shapes: Sequence[Any], dim: int) -> Origin | None:
    """The origin of tensors joined along an axis; what is known of one is filled into the rest.

    Learned tokens that are put before a sequence belong to its sample, and are no tokens of it.
    """
    known = [origin for origin in origins if origin is not None]
    if not known:
        return None
    first = next((o for o in known if o.other is not None), known[0])
    filled = []
    for origin, shape in zip(origins, shapes, strict=True):
        if origin is None or (first.other is not None and origin.other is None):
            origin = _filled(first if origin is None else origin, first, shape, dim)
        filled.append(origin)
    sides = [(o.sample, o.token, o.feature) for o in filled]
    sample, token, feature = (
        _cat([origin[number] for origin in sides], dim) for number in range(3)
    )
    others = [o.other for o in filled if o.other is not None]
    other = _cat(others, dim) if len(others) == len(filled) else None
    return Origin(sample, token, feature, other, any(o.weights for o in filled))


def _filled(origin: Origin, first: Origin, shape: Any, dim: int) -> Origin:
    """The origin of a tensor without one of its own, from its neighbour along an axis."""

    def beside(part: torch.Tensor) -> torch.Tensor:
        if list(part.shape) == list(shape) and origin is not first:
            return part
        return one_along(part, dim).unsqueeze(dim).expand(shape)

    found = [beside(part) for part in (origin.sample, origin.token, origin.feature)]
    other = None if first.other is None else found[0].new_full((), NOT_A_TOKEN).expand(shape)
    return Origin(found[0], found[1], found[2], other, origin.weights)


def _cat(parts: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Joined along an axis, without copying what is only repeated along the others."""
    shape = list(parts[0].shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    if all(part.shape[dim] == 1 or part.stride(dim) == 0 for part in parts):
        firsts = [part.narrow(dim, 0, 1) for part in parts if part.shape[dim]]
        if all(torch.equal(first, firsts[0]) for first in firsts[1:]):
            return firsts[0].expand(shape)  # nothing varies along the axis
    for axis in range(len(shape)):
        if axis != dim % len(shape) and all(part.stride(axis) == 0 for part in parts):
            parts = [part.narrow(axis, 0, min(1, part.shape[axis])) for part in parts]
    return torch.cat(list(parts), dim=dim).expand(shape)


def padded(origin: Origin, widths: Sequence[int]) -> Origin:
    """The origin after a tensor was filled up at its ends; what was added is no real token."""

    def grow(part: torch.Tensor, fill: bool) -> torch.Tensor:
        for pair in range(len(widths) // 2):
            dim, left, right = part.ndim - 1 - pair, widths[2 * pair], widths[2 * pair + 1]
            if not (left or right) or not part.numel():
                continue
            places = torch.arange(-left, part.shape[dim] + right, device=part.device)
            inside = (places >= 0) & (places < part.shape[dim])
            along = varies(part, dim)
            part = part.index_select(dim, places.clamp(0, part.shape[dim] - 1))
            if fill and along:
                inside = inside.reshape([-1 if i == dim else 1 for i in range(part.ndim)])
                part = torch.where(inside, part, PADDED)
        return part

    other = None if origin.other is None else grow(origin.other, True)
    return Origin(
        grow(origin.sample, False), grow(origin.token, True), grow(origin.feature, False),
        other, origin.weights,
    )  # fmt: skip
