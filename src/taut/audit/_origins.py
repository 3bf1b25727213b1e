"""Follow samples, tokens and features through a forward pass.

The inputs say which axis holds samples and which tokens; linear maps make features. Splitting
features makes heads, splitting tokens makes blocks: so heads, samples and queries of a softmax are
known whatever layout a model prefers, and padding is told by the token it came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from taut.audit._origin import (
    FEATURES, NOT_A_TOKEN, TOKENS, Origin, joined, least, one_along, padded, varies,
)  # fmt: skip
from taut.audit._tensors import changes, op_name, tensors_in

# The entries of the first argument, elsewhere: the same operation moves their origins.
_MOVES = {
    "transpose", "permute", "t", "unsqueeze", "squeeze", "slice", "select", "unbind", "split",
    "split_with_sizes", "chunk", "narrow", "unfold", "diagonal", "flip", "roll", "repeat",
    "repeat_interleave", "index_select", "index", "gather", "movedim", "tile", "swapaxes",
    "expand", "rot90",
}  # fmt: skip
_RESHAPES = {"view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten"}
_REDUCES = {
    "sum", "mean", "amax", "amin", "max", "min", "logsumexp", "var", "std", "linalg_vector_norm",
    "norm", "median", "prod",
}  # fmt: skip
_SPATIAL = ("convolution", "pool", "upsample", "interpolate", "conv1d", "conv2d", "grid_sampler")
_LINEAR = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_addmm_activation": 1, "mv": 0, "addmv": 1}
_NEW = ("argsort", "randn_like", "rand_like", "zeros_like", "ones_like", "bernoulli")
# Operations that put a source into a target, and which of their arguments the source is.
_PUTS: dict[str, Callable[[Any], Any]] = {
    "index_add": lambda args: args[3], "index_copy": lambda args: args[3],
    "scatter": lambda args: args[3], "scatter_add": lambda args: args[3],
    "index_put": lambda args: args[2], "_index_put_impl": lambda args: args[2],
}  # fmt: skip
_NOT_FOLLOWED = (RuntimeError, IndexError, TypeError, ValueError, AttributeError)
STRICT = False  # tests want to know what cannot be followed


class Origins:
    """Origins of all tensors of a forward pass that depend on its inputs."""

    def __init__(self, fixed: Callable[[torch.Tensor], bool]) -> None:
        self._fixed = fixed  # whether a tensor is made of parameters alone
        self._kept: dict[int, _Storage] = {}
        self._sources = 0

    def source(self) -> int:
        """The number of the first token of a new sequence of tokens."""
        self._sources += 1
        return self._sources * TOKENS

    def of(self, tensor: Any) -> Origin | None:
        """The origin of a tensor, if it is known."""
        kept = self._kept.get(_key(tensor))
        return None if kept is None or kept.dead else kept.get(tensor)

    def set(self, tensor: torch.Tensor, origin: Origin | None) -> None:
        """Say where a tensor comes from."""
        key = _key(tensor)
        if key == -1:
            return
        kept = self._kept.get(key)
        if kept is None or kept.dead:
            if origin is None:
                return
            kept = self._kept[key] = _Storage(tensor)
        kept.put(tensor, origin)

    def mark_weights(self, tensor: torch.Tensor) -> None:
        """Say that a tensor holds the weights of a softmax."""
        origin = self.of(tensor)
        if origin is not None:
            self.set(tensor, origin._replace(weights=True))

    def note(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Take in one operation of PyTorch."""
        name = op_name(function)
        given = [(t, o) for t in tensors_in((*args, *kwargs.values())) if (o := self.of(t))]
        if not given or name in _NEW:
            return
        if changes(function):
            self._write(name, args, result, given)
            return
        results = [t for t in tensors_in((result,)) if t.layout is torch.strided]
        try:
            found = self._follow(name, function, args, kwargs, results, given)
        except _NOT_FOLLOWED:  # an operation used in a way that is not known here: no origin
            if STRICT:
                raise
            return
        for tensor, origin in zip(results, found, strict=False):
            if origin is not None and origin.sample.shape == tensor.shape:
                self.set(tensor, origin)
        if len(self._kept) > 4096:
            self._kept = {key: kept for key, kept in self._kept.items() if not kept.dead}

    def _write(self, name: str, args: Any, result: Any, given: Any) -> None:
        """An operation that writes into its first argument."""
        target = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if target is None or not isinstance(result, torch.Tensor):
            return
        if name == "copy":
            origin = self.of(args[1])
            if origin is not None:
                self._kept.setdefault(_key(target), _Storage(target)).write(target, origin)
        elif name in _PUTS:
            self.set(target, _put(name, args, self.of(target), self.of(_PUTS[name](args))))
        elif self.of(target) is None:
            self.set(target, _pointwise(target.shape, given))

    def _follow(
        self, name: str, function: Any, args: Any, kwargs: Any, results: Any, given: Any
    ) -> list[Origin | None]:
        if not results:
            return []
        result, (first, origin) = results[0], given[0]
        if name == "as_strided":  # a view that is read off the whole storage
            self._kept[_key(first)].flat(first)
            return []
        if name in _LINEAR:
            return [self._product(*args[_LINEAR[name] : _LINEAR[name] + 2], result)]
        if name in _RESHAPES:
            return [origin.reshape(result.shape) if result.numel() == first.numel() else None]
        if name in _MOVES and first is args[0]:
            return _moved(function, args, kwargs, origin)
        if name in _PUTS:
            return [_put(name, args, self.of(args[0]), self.of(_PUTS[name](args)))]
        if name in ("topk", "sort") and first is args[0] and len(results) == 2:
            dim = kwargs.get("dim", args[2] if name == "topk" and len(args) > 2 else -1)
            dim = args[1] if name == "sort" and len(args) > 1 else dim
            return [origin.moved(lambda part: part.gather(dim, results[1]))]
        if name in ("cat", "stack", "concat"):
            return [self._joined(name, args, kwargs)]
        if name == "constant_pad_nd":
            return [padded(origin, args[1])]
        if name in ("view_as_complex", "view_as_real"):
            real = name == "view_as_real"
            return [origin.moved(lambda part: part.unsqueeze(-1)).expand(result.shape) if real
                    else origin.moved(lambda part: part.select(-1, 0))]  # fmt: skip
        if name == "embedding":
            return [_embedded(origin, result)]
        if name == "im2col":
            return [_unfolded(function, args, kwargs, origin)]
        if any(part in name for part in _SPATIAL) and first is args[0] and first.ndim >= 3:
            return [self._spatial(origin, result, channels="conv" in name)]
        if name in _REDUCES and first is args[0] and result.numel() <= first.numel():
            return [_reduced(name, origin, args, kwargs, result)] * len(results)
        return [_pointwise(each.shape, given) for each in results]

    def _joined(self, name: str, args: Any, kwargs: Any) -> Origin | None:
        parts, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
        parts = [part for part in parts if part.ndim > 1 or part.numel() or name == "stack"]
        found = [self.of(part) for part in parts]
        shapes = [list(part.shape) for part in parts]
        if name == "stack":
            dim = dim % (len(shapes[0]) + 1)
            found = [o and o.moved(lambda part: part.unsqueeze(dim)) for o in found]
            shapes = [[*shape[:dim], 1, *shape[dim:]] for shape in shapes]
        return joined(found, shapes, dim) if shapes else None

    def _product(self, left: Any, right: Any, result: torch.Tensor) -> Origin | None:
        """A product of matrices: a linear map, scores of queries and keys, or weights and values."""
        mine, theirs = self.of(left), self.of(right)
        shape = tuple(result.shape)
        if right.ndim == 1:
            theirs = theirs and theirs.moved(lambda part: part[:, None])
            shape = (*shape, 1)
        if mine is not None and theirs is None:
            if _split(mine, -1) and not mine.weights:  # learned keys
                found = _scores(mine, None, shape)
            else:
                found = self._linear(mine, right, shape, -1)
        elif theirs is None:
            return None
        elif mine is None and self._fixed(left) and not _split(theirs, -2):
            found = self._linear(theirs, left, shape, -2)
        elif mine is not None and not theirs.weights and (
            mine.weights or mine.other is not None or theirs.other is not None
        ):  # also of weights that are not normalised, as in linear attention
            found = _averaged(mine.along(-1), least(theirs.feature, -2), shape, -1)
        elif mine is not None and theirs.weights:
            found = _averaged(theirs.along(-2), least(mine.feature, -1), shape, -2)
        else:
            found = _scores(mine, theirs, shape)
        return found.reshape(result.shape)

    def _linear(self, mine: Origin, weight: torch.Tensor, shape: Any, dim: int) -> Origin:
        """Features of a map by parameters, which stands on the other side of axis ``dim``."""
        rows = mine.along(dim)
        out = torch.arange(shape[dim], device=rows.sample.device)
        out = out if dim == -1 else out[:, None]
        token, feature = rows.token.unsqueeze(dim).expand(shape), None
        if varies(mine.token, dim) and not varies(mine.feature, dim):  # it mixes tokens
            token = (self.source() + out).expand(shape)
            feature = rows.feature.unsqueeze(dim).expand(shape)
        if feature is None:
            feature = out.expand(shape)
            if weight.ndim == 3 and weight.shape[0] > 1 and weight.stride(0):  # a map for each head
                heads = torch.arange(shape[0], device=out.device)[:, None, None]
                feature = (heads * shape[dim] + out).expand(shape)
        other = None
        pairs = rows.other is not None and not rows.weights and bool((rows.other >= 0).any())
        if rows.other is not None and pairs:  # a map of pairs of tokens
            other = rows.other.unsqueeze(dim).expand(shape)
        return Origin(rows.sample.unsqueeze(dim).expand(shape), token, feature, other)

    def _spatial(self, origin: Origin, result: torch.Tensor, *, channels: bool) -> Origin:
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
        if shape[2:] == origin.token.shape[2:]:
            token = one_along(origin.token, 1).unsqueeze(1).expand(shape)
        else:
            places = torch.arange(shape[2:].numel(), device=sample.device)
            token = (self.source() + places.reshape(shape[2:])).expand(shape)
        return Origin(sample, token, feature)


class _Storage:
    """Origins of the views of one storage."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self._length = storage.nbytes() // tensor.element_size()
        self._views: dict[Any, Origin | None] = {}
        self._flat: Origin | None = None  # of the whole storage, where parts were written

    @property
    def dead(self) -> bool:
        """Whether nobody uses the storage any more."""
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
        """Something was written into a view: others see it too."""
        shape, stride, offset = _place(tensor)
        if tensor.numel() == self._length or self._length > 1 << 28:  # then nothing else is there
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
            whole = Origin(*(part.clone() for part in parts))
            for (shape, stride, offset), origin in self._views.items():
                for part, theirs in zip(whole[:3], (origin or ())[:3], strict=False):
                    part.as_strided(shape, stride, offset).copy_(theirs)
            self._views, self._flat = {}, whole
        return self._flat


def _split(origin: Origin, dim: int) -> bool:
    """Whether the batch of a factor holds heads: other features in each of its matrices."""
    if origin.feature.ndim != 3:
        return False
    first = least(least(origin.feature, dim), -1)
    return varies(first, 0)


def _scores(mine: Origin | None, theirs: Origin | None, shape: Any) -> Origin:
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
        query = Origin(*(part.unsqueeze(-1) for part in rows[:3]))
        if varies(mine.token, -1) and not varies(mine.feature, -1):  # rows are features
            first = least(rows.feature, -1)[..., None, None]
            query = query._replace(feature=first.expand(query.feature.shape))
    feature = query.feature * FEATURES + head
    parts = [part.expand(shape) for part in (query.sample, query.token, feature)]
    return Origin(*parts, other=key_token.expand(shape))


def _averaged(rows: Origin, feature: torch.Tensor, shape: Any, dim: int) -> Origin:
    """Weights times values: tokens are those of the queries, features those of the values."""
    across = -2 if dim == -1 else -1
    return Origin(
        rows.sample.unsqueeze(dim).expand(shape), rows.token.unsqueeze(dim).expand(shape),
        feature.unsqueeze(across).expand(shape),
    )  # fmt: skip


def _moved(function: Any, args: Any, kwargs: Any, origin: Origin) -> list[Origin | None]:
    def move(part: torch.Tensor) -> Any:
        return function(part, *args[1:], **kwargs)

    first = move(origin.sample)
    if isinstance(first, torch.Tensor):
        return [origin.moved(move)]
    others = [None] * len(first) if origin.other is None else move(origin.other)
    rest = zip(first, move(origin.token), move(origin.feature), others, strict=True)
    return [Origin(*parts, weights=origin.weights) for parts in rest]


def _put(name: str, args: Any, target: Origin | None, source: Origin | None) -> Origin | None:
    """The origin of a target after a source was put into some of its places."""
    if source is None:
        return target

    def put(number: int) -> torch.Tensor:
        part = source[number]
        shape = args[0].shape
        whole = torch.full(shape, NOT_A_TOKEN, device=part.device)
        whole = whole if target is None else target[number].expand(shape).clone()
        if "index_put" in name:
            return whole.index_put(args[1], part.contiguous())
        if name.startswith("scatter"):
            return whole.scatter(args[1], args[2], part.contiguous())
        return whole.index_copy(args[1], args[2], part.contiguous())

    return Origin(put(0), put(1), put(2))


def _unfolded(function: Any, args: Any, kwargs: Any, origin: Origin) -> Origin:
    """Patches, by an operation that knows floating-point numbers alone; 0 stands for nothing."""

    def move(part: torch.Tensor) -> torch.Tensor:
        shifted = (part + 3).double()
        return function(shifted, *args[1:], **kwargs).long() - 3

    sample, token, feature = (move(part) for part in origin[:3])
    one = origin.sample[:, :1, 0, 0].expand(sample.shape[:2])[..., None].expand(sample.shape)
    return Origin(one, token, feature)


def _embedded(origin: Origin, result: torch.Tensor) -> Origin:
    whole = origin.moved(lambda part: part.unsqueeze(-1)).expand(result.shape)
    features = torch.arange(result.shape[-1], device=result.device).expand(result.shape)
    return whole._replace(feature=features)


def _reduced(
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


def _pointwise(shape: Any, given: Any) -> Origin | None:
    """Operations that leave every entry where it is, with broadcasting.

    Two factors that are spread over each other make pairs of tokens, as products do.
    """
    fitting = [(t, o) for t, o in given if _spreads(t.shape, shape)]
    if not fitting:
        return None
    size = torch.Size(shape).numel()
    whole = [o for t, o in fitting if t.numel() == size]
    if whole:
        return next((o for o in whole if o.other is not None), whole[0]).expand(shape)
    first, origin = fitting[0]
    origin = origin.expand(shape)
    for _, second in fitting[1:]:
        pair = second.expand(shape)
        crossed = any(varies(origin.token, d) and not varies(pair.token, d) for d in
                      range(len(shape))) and any(varies(pair.token, d) and not
                      varies(origin.token, d) for d in range(len(shape)))  # fmt: skip
        if crossed and origin.other is None:
            return origin._replace(other=pair.token)
    return origin


def _spreads(small: Any, shape: Any) -> bool:
    """Whether a shape can be spread to another."""
    if len(small) > len(shape):
        return False
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(shape), strict=False))


def _place(tensor: torch.Tensor) -> Any:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def _key(tensor: Any) -> int:
    strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return tensor.untyped_storage()._cdata if strided else -1
