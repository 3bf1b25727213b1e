"""How single operations change origins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from taut.models._tracking.index_arrays import least, narrowed, one_along, varies
from taut.models._tracking.origin import FEATURES, GIVEN, NOT_A_TOKEN, Origin

Given = Sequence[tuple[torch.Tensor, Origin]]


def holds_heads(origin: Origin, dim: int) -> bool:
    """Whether the batch axis of a factor holds heads, with other features in each matrix."""
    if origin.feature.ndim != 3:
        return False
    first = least(least(origin.feature, dim), -1)
    return varies(first, 0)


def scores(mine: Origin | None, theirs: Origin | None, shape: Any) -> Origin:
    """Products of queries (rows) and keys (columns); one of them may be learned."""
    known = mine or theirs
    assert known is not None
    unknown = torch.full((1, 1), NOT_A_TOKEN, device=known.token.device)
    if theirs is None:
        key_token, head = unknown, unknown + 1
    else:
        key = theirs.along(-2)
        key_token, head = key.token.unsqueeze(-2), least(key.feature, -1)[..., None, None]
    if mine is None:
        assert theirs is not None
        sample = one_along(theirs.along(-2).sample, -1)[..., None, None]
        query = Origin(sample, unknown, unknown + 1)
    else:
        rows = mine.along(-1)
        query = rows._replace(other=None).moved(lambda part: part.unsqueeze(-1))
        if varies(mine.token, -1) and not varies(mine.feature, -1):  # rows are features
            first = least(rows.feature, -1)[..., None, None]
            query = query._replace(feature=first.expand(query.feature.shape))
    feature = query.feature * FEATURES + head
    sample, token = query.sample.expand(shape), query.token.expand(shape)
    return Origin(sample, token, feature.expand(shape), key_token.expand(shape))


def made_features(origin: Origin) -> bool:
    """Whether entries differ in features that a linear map made."""
    feature = narrowed(origin.feature)
    return bool((feature < GIVEN).all()) and any(varies(feature, d) for d in range(feature.ndim))


def of_pairs(origin: Origin) -> bool:
    """Whether a tensor holds products of tokens with others that are known."""
    return origin.other is not None and bool((narrowed(origin.other) >= 0).any())


def are_pairs(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether each token is paired with several others, as queries are with keys."""
    known = (first >= 0) & (second >= 0)
    both = [torch.unique(part[known], return_inverse=True) for part in (first, second)]
    counts = [len(values) for values, _ in both]
    pairs = torch.unique(both[0][1] * counts[1] + both[1][1])
    return len(pairs) > max(counts)


def averaged(rows: Origin, feature: torch.Tensor, shape: Any, dim: int) -> Origin:
    """Weights times values: tokens are those of the queries, features those of the values."""
    across = -2 if dim == -1 else -1
    return Origin(
        rows.sample.unsqueeze(dim).expand(shape), rows.token.unsqueeze(dim).expand(shape),
        feature.unsqueeze(across).expand(shape),
    )  # fmt: skip


def moved_alike(function: Any, args: Any, kwargs: Any, origin: Origin) -> list[Origin | None]:
    def move(part: torch.Tensor) -> Any:
        return function(part, *args[1:], **kwargs)

    first = move(origin.sample)
    if isinstance(first, torch.Tensor):
        return [origin.moved(move)]
    others = [None] * len(first) if origin.other is None else move(origin.other)
    rest = zip(first, move(origin.token), move(origin.feature), others, strict=True)
    return [Origin(*parts, weights=origin.weights) for parts in rest]


def put_into(name: str, args: Any, target: Origin | None, source: Origin | None) -> Origin | None:
    """The origin of a target after a source was put into some of its places."""
    if source is None:
        return target

    parts = (source.sample, source.token, source.feature)
    before = None if target is None else (target.sample, target.token, target.feature)

    def put(number: int) -> torch.Tensor:
        part, shape = parts[number], args[0].shape
        whole = torch.full(shape, NOT_A_TOKEN, device=part.device)
        whole = whole if before is None else before[number].expand(shape).clone()
        if "index_put" in name:
            placed: torch.Tensor = torch.ops.aten.index_put(whole, args[1], part.contiguous())
            return placed
        if name.startswith("scatter"):
            return whole.scatter(args[1], args[2], part.contiguous())
        return whole.index_copy(args[1], args[2], part.contiguous())

    return Origin(put(0), put(1), put(2))


def unfolded(function: Any, args: Any, kwargs: Any, origin: Origin) -> Origin:
    """Patches from an operation that takes only floating-point numbers; 0 stands for nothing."""

    def move(part: torch.Tensor) -> torch.Tensor:
        shifted = (part + 3).double()
        found: torch.Tensor = function(shifted, *args[1:], **kwargs).long() - 3
        return found

    sample, token, feature = (move(part) for part in origin[:3])
    one = origin.sample[:, :1, 0, 0].expand(sample.shape[:2])[..., None].expand(sample.shape)
    return Origin(one, token, feature)


def embedded(origin: Origin, result: torch.Tensor) -> Origin:
    whole = origin.moved(lambda part: part.unsqueeze(-1)).expand(result.shape)
    features = torch.arange(result.shape[-1], device=result.device).expand(result.shape)
    return whole._replace(feature=features)


def reduced_over(
    name: str, origin: Origin, args: Any, kwargs: Any, result: torch.Tensor
) -> Origin | None:
    """Sums and maxima over axes."""
    place = 2 if "norm" in name else 1  # after the exponent
    dims = kwargs.get("dim", args[place] if len(args) > place else None)
    dims = [dims] if isinstance(dims, int) and not isinstance(dims, bool) else dims
    if not isinstance(dims, (list, tuple)) or not dims:
        return None
    for dim in sorted((dim % origin.sample.ndim for dim in dims), reverse=True):
        origin = origin.along(dim)
    return origin.reshape(result.shape) if origin.sample.numel() == result.numel() else None


def pointwise(shape: Any, given: Given) -> Origin | None:
    """Pointwise operations, with broadcasting.

    Two factors that are spread over each other make pairs of tokens, as products do.
    """
    fitting = [(t, o) for t, o in given if _spreads(t.shape, shape)]
    if not fitting:
        return None
    size = torch.Size(shape).numel()
    whole = [o for t, o in fitting if t.numel() == size]
    if whole:
        whole = [o for o in whole if o.other is not None][:1] or whole
        return (whole[0] if len(whole) == 1 else min(whole, key=_unknown)).expand(shape)
    origin = fitting[0][1]
    origin = origin.expand(shape)
    for _, second in fitting[1:]:
        pair = second.expand(shape)
        crossed = any(varies(origin.token, d) and not varies(pair.token, d) for d in
                      range(len(shape))) and any(varies(pair.token, d) and not
                      varies(origin.token, d) for d in range(len(shape)))  # fmt: skip
        if crossed and origin.other is None:
            return origin._replace(other=pair.token)
    return origin


def _unknown(origin: Origin) -> int:
    """How many places are not known to be tokens; of a residual, the input knows most."""
    return int((narrowed(origin.token) < 0).sum())


def _spreads(small: Any, shape: Any) -> bool:
    """Whether a shape can be broadcast to another."""
    if len(small) > len(shape):
        return False
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(shape), strict=False))
