"""Where the entries of a tensor come from: which sample, which token, which feature.

An origin is a few arrays of whole numbers of the tensor's shape. They are kept expanded (with
strides of 0) wherever they do not vary, so that they take next to no memory, and moved as the
entries themselves are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from taut.models._tracking.index_arrays import cat, least, one_along, reshape, varies

NOT_A_TOKEN = -1  # such as a learned class token
PADDED = -2  # padding that the model itself adds
FEATURES = 1 << 20  # no layer is wider
GIVEN = 1 << 19  # features of inputs are numbered from here, those of linear maps from 0
TOKENS = 1 << 24  # no sequence is longer; numbers of tokens are source·TOKENS + position


class Origin(NamedTuple):
    """Origins of all entries of a tensor, as arrays of its shape; negative where unknown."""

    sample: torch.Tensor
    token: torch.Tensor
    feature: torch.Tensor
    other: torch.Tensor | None = None  # the key's token, in products of queries and keys
    weights: bool = False  # whether the entries are weights of a softmax

    def moved(self, move: Callable[[torch.Tensor], torch.Tensor]) -> Origin:
        """The origin after every array was moved like the entries."""
        other = None if self.other is None else move(self.other)
        return Origin(move(self.sample), move(self.token), move(self.feature), other, self.weights)

    def expand(self, shape: Sequence[int]) -> Origin:
        """The origin of an expanded tensor."""
        return self.moved(lambda part: part.expand(shape))

    def reshape(self, shape: Sequence[int]) -> Origin:
        """The origin of a reshaped tensor."""
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


def joined(origins: Sequence[Origin | None], shapes: Sequence[Any], dim: int) -> Origin | None:
    """The origin of tensors joined along an axis; unknown ones take that of a known one.

    Learned tokens in front of a sequence belong to its sample, but are not among its tokens.
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
    sample, token, feature = (cat([origin[number] for origin in sides], dim) for number in range(3))
    others = [o.other for o in filled if o.other is not None]
    other = cat(others, dim) if len(others) == len(filled) else None
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


def padded(origin: Origin, widths: Sequence[int]) -> Origin:
    """The origin after a tensor was padded at its ends; added entries are padding tokens."""

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
