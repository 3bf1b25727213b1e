"""Origins of products of matrices, of linear maps and of convolutions, which make new features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from taut.models._tracking.index_arrays import least, one_along, ranks, varies
from taut.models._tracking.origin import Origin
from taut.models._tracking.origin_rules import (
    are_pairs,
    averaged,
    holds_heads,
    made_features,
    of_pairs,
    scores,
)

NewSource = Callable[[], int]  # the number of the first token of a new sequence


class Factors(NamedTuple):
    """The two factors of a product of matrices, with their origins."""

    left: torch.Tensor
    right: torch.Tensor
    mine: Origin | None
    theirs: Origin | None


def product(
    factors: Factors, shape: Any, fixed: Callable[[torch.Tensor], bool], new_source: NewSource
) -> Origin | None:
    """A product of matrices: a linear map, queries and keys, or weights and values.

    ``fixed`` says whether a tensor is made of parameters alone.
    """
    left, right, mine, theirs = factors
    if theirs is None:
        if mine is None:
            return None
        if holds_heads(mine, -1) and not mine.weights:  # learned keys
            return scores(mine, None, shape)
        return linear(mine, right, shape, -1, new_source)
    if mine is None:
        if fixed(left) and not holds_heads(theirs, -2):
            return linear(theirs, left, shape, -2, new_source)
    elif theirs.weights:
        return averaged(theirs.along(-2), least(mine.feature, -1), shape, -2)
    elif mine.weights or of_pairs(mine) or of_pairs(theirs):
        # also of weights that are not normalised, as in linear attention
        return averaged(mine.along(-1), least(theirs.feature, -2), shape, -1)
    return scores(mine, theirs, shape)


def linear(
    mine: Origin, weight: torch.Tensor, shape: Any, dim: int, new_source: NewSource
) -> Origin:
    """Features of a map by parameters, which stands on the other side of axis ``dim``."""

    def across(part: torch.Tensor) -> torch.Tensor:
        return part.unsqueeze(dim).expand(shape)

    out = torch.arange(shape[dim], device=mine.sample.device)
    out = out if dim == -1 else out[:, None]
    sample = across(one_along(mine.sample, dim))
    token = one_along(mine.token, dim)
    if varies(mine.token, dim):
        if not varies(mine.feature, dim) and made_features(mine):  # it mixes tokens
            places = (new_source() + out).expand(shape)
            return Origin(sample, places, across(least(mine.feature, dim)))
        # Of several tokens it makes a new one, such as a patch of pixels.
        token = new_source() + ranks(least(mine.token, dim))
    feature = out.expand(shape)
    own = weight.ndim == 3 and weight.shape[0] > 1 and weight.stride(0) != 0
    if own and not varies(token, 0):  # a map for each head, not for each token
        heads = torch.arange(shape[0], device=out.device)[:, None, None]
        feature = (heads * shape[dim] + out).expand(shape)
    other = None
    if mine.other is not None and not mine.weights:
        key = one_along(mine.other, dim)
        other = across(key) if are_pairs(token, key) else None
    return Origin(sample, across(token), feature, other)


def spatial(
    origin: Origin, result: torch.Tensor, new_source: NewSource, *, channels: bool
) -> Origin:
    """Convolutions and pooling of (samples, channels, ...): new positions if they are fewer."""
    rows = origin.sample.ndim - 2
    sample, feature = origin.sample, origin.feature
    for _ in range(rows):
        sample, feature = sample[..., 0], least(feature, -1)
    shape, tail = result.shape, (1,) * rows
    sample = sample[:, :1].reshape(-1, 1, *tail).expand(shape)
    if channels:
        count = torch.arange(shape[1], device=sample.device)
        feature = count.reshape(1, -1, *tail).expand(shape)
    else:
        feature = feature.reshape(*feature.shape, *tail).expand(shape)
    kept = shape[2:] == origin.token.shape[2:]
    if kept and origin.other is not None:  # a mixture of heads
        whole = origin.moved(lambda part: one_along(part, 1).unsqueeze(1).expand(shape))
        return whole._replace(feature=feature)
    if kept and not varies(origin.token, 1):
        token = one_along(origin.token, 1).unsqueeze(1).expand(shape)
    else:
        places = torch.arange(shape[2:].numel(), device=sample.device)
        token = (new_source() + places.reshape(shape[2:])).expand(shape)
    return Origin(sample, token, feature)
