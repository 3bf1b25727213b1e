"""Arrays of whole numbers, one for each entry of a tensor, expanded wherever they do not vary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

UNKNOWN = -1  # stands for several numbers, or none that is known


def varies(part: torch.Tensor, dim: int) -> bool:
    """Whether known numbers differ anywhere along an axis."""
    if part.shape[dim] <= 1 or part.stride(dim) == 0 or not part.numel():
        return False
    part = narrowed(part, keep=dim)
    top = part.amax(dim=dim, keepdim=True)
    return bool(((part != top) & (part >= 0)).any())


def ranks(part: torch.Tensor) -> torch.Tensor:
    """The rank of each number among the distinct ones, from 0."""
    small = narrowed(part)
    found: torch.Tensor = torch.unique(small, return_inverse=True)[1]
    return found.reshape(small.shape).expand(part.shape)


def one_along(part: torch.Tensor, dim: int) -> torch.Tensor:
    """The only number along an axis, which is dropped; unknown if there are several."""

    def only(small: torch.Tensor) -> torch.Tensor:
        top = small.amax(dim=dim)
        low = torch.where(small < 0, top.unsqueeze(dim), small).amin(dim=dim)
        return torch.where(low == top, top, UNKNOWN)

    return _dropped(part, dim, only)


def least(part: torch.Tensor, dim: int) -> torch.Tensor:
    """The smallest number along an axis, which is dropped."""
    return _dropped(part, dim, lambda small: small.amin(dim=dim))


def _dropped(
    part: torch.Tensor, dim: int, reduce: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Reduce an axis, computing only where something varies along it."""
    if part.shape[dim] == 0:
        return part.sum(dim=dim)
    if part.shape[dim] == 1 or part.stride(dim) == 0:
        return part.select(dim, 0)
    shape = [n for i, n in enumerate(part.shape) if i != dim % part.ndim]
    return reduce(narrowed(part, keep=dim)).expand(shape)


def narrowed(part: torch.Tensor, keep: int | None = None) -> torch.Tensor:
    """The array with length 1 along axes on which it is only repeated."""
    kept = None if keep is None else keep % part.ndim
    for dim in range(part.ndim):
        if dim != kept and part.shape[dim] > 1 and part.stride(dim) == 0:
            part = part.narrow(dim, 0, 1)
    return part


def reshape(part: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """``part.reshape(shape)`` without copies along axes on which it is only repeated."""
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


def cat(parts: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """``torch.cat`` without copies along axes on which the parts are only repeated."""
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
