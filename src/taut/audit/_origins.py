"""Follow samples, tokens and features through a forward pass.

The inputs say which axis holds samples and which tokens; linear maps make features. Splitting
features makes heads, splitting tokens makes blocks: so heads, samples and queries of a softmax are
known whatever layout a model prefers, and padding is told by the token it came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from taut.audit._origin import (
    TOKENS,
    Origin,
    joined,
    least,
    one_along,
    padded,
    ranks,
    varies,
)  # fmt: skip
from taut.audit._origin_rules import (
    are_pairs,
    averaged,
    embedded,
    holds_heads,
    made_features,
    moved_alike,
    of_pairs,
    pointwise,
    put_into,
    reduced_over,
    scores,
    unfolded,
)  # fmt: skip
from taut.audit._origin_store import Store
from taut.audit._tensors import changes, op_name, storage_key, tensors_in

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
        self._kept: dict[int, Store] = {}
        self._sources = 0

    def source(self) -> int:
        """The number of the first token of a new sequence of tokens."""
        self._sources += 1
        return self._sources * TOKENS

    def of(self, tensor: Any) -> Origin | None:
        """The origin of a tensor, if it is known."""
        kept = self._kept.get(storage_key(tensor))
        return None if kept is None or kept.dead else kept.get(tensor)

    def set(self, tensor: torch.Tensor, origin: Origin | None) -> None:
        """Say where a tensor comes from."""
        if storage_key(tensor) != -1:
            self._store(tensor).put(tensor, origin)

    def _store(self, tensor: torch.Tensor) -> Store:
        """What is kept of the storage of a tensor; numbers of storages that are gone come again."""
        kept = self._kept.get(storage_key(tensor))
        if kept is None or kept.dead:
            kept = self._kept[storage_key(tensor)] = Store(tensor)
        return kept

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
        results = [t for t in tensors_in((result,)) if t.layout is torch.strided]
        try:
            if changes(function):
                self._write(name, args, result, given)
                return
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
                self._store(target).write(target, origin)
        elif name in _PUTS:
            self.set(target, put_into(name, args, self.of(target), self.of(_PUTS[name](args))))
        elif self.of(target) is None:
            self.set(target, pointwise(target.shape, given))

    def _follow(
        self, name: str, function: Any, args: Any, kwargs: Any, results: Any, given: Any
    ) -> list[Origin | None]:
        if not results:
            return []
        result, (first, origin) = results[0], given[0]
        if name == "as_strided":  # a view that is read off the whole storage
            self._store(first).flat(first)
            return []
        if name in _LINEAR:
            left, right = args[_LINEAR[name] : _LINEAR[name] + 2]
            return [self._product(left, right, result)]
        if name in _RESHAPES:
            return [origin.reshape(result.shape) if result.numel() == first.numel() else None]
        if name in _MOVES and first is args[0]:
            return moved_alike(function, args, kwargs, origin)
        if name in _PUTS:
            return [put_into(name, args, self.of(args[0]), self.of(_PUTS[name](args)))]
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
            return [embedded(origin, result)]
        if name == "col2im":
            rows = origin.along(-1).along(-1)
            whole = rows.moved(lambda part: part[:, None, None, None])
            return [self._spatial(whole, result, channels=True)]
        if name == "im2col":
            return [unfolded(function, args, kwargs, origin)]
        if any(part in name for part in _SPATIAL) and first is args[0] and first.ndim >= 3:
            return [self._spatial(origin, result, channels="conv" in name)]
        if name in _REDUCES and first is args[0] and result.numel() <= first.numel():
            return [reduced_over(name, origin, args, kwargs, result)] * len(results)
        return [pointwise(each.shape, given) for each in results]

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
        """A product of matrices: a linear map, queries and keys, or weights and values."""
        mine, theirs = self.of(left), self.of(right)
        shape = tuple(result.shape)
        if right.ndim == 1:
            theirs = theirs and theirs.moved(lambda part: part[:, None])
            shape = (*shape, 1)
        if mine is not None and theirs is None:
            if holds_heads(mine, -1) and not mine.weights:  # learned keys
                found = scores(mine, None, shape)
            else:
                found = self._linear(mine, right, shape, -1)
        elif theirs is None:
            return None
        elif mine is None and self._fixed(left) and not holds_heads(theirs, -2):
            found = self._linear(theirs, left, shape, -2)
        elif (
            mine is not None
            and not theirs.weights
            and (mine.weights or of_pairs(mine) or of_pairs(theirs))
        ):  # also of weights that are not normalised, as in linear attention
            found = averaged(mine.along(-1), least(theirs.feature, -2), shape, -1)
        elif mine is not None and theirs.weights:
            found = averaged(theirs.along(-2), least(mine.feature, -1), shape, -2)
        else:
            found = scores(mine, theirs, shape)
        return found.reshape(result.shape)

    def _linear(self, mine: Origin, weight: torch.Tensor, shape: Any, dim: int) -> Origin:
        """Features of a map by parameters, which stands on the other side of axis ``dim``."""

        def across(part: torch.Tensor) -> torch.Tensor:
            return part.unsqueeze(dim).expand(shape)

        out = torch.arange(shape[dim], device=mine.sample.device)
        out = out if dim == -1 else out[:, None]
        sample = across(one_along(mine.sample, dim))
        token = one_along(mine.token, dim)
        if varies(mine.token, dim):
            if not varies(mine.feature, dim) and made_features(mine):  # it mixes tokens
                places = (self.source() + out).expand(shape)
                return Origin(sample, places, across(least(mine.feature, dim)))
            # Of several tokens it makes a new one, such as a patch of pixels.
            token = self.source() + ranks(least(mine.token, dim))
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
        kept = shape[2:] == origin.token.shape[2:]
        if kept and origin.other is not None:  # a mixture of heads
            whole = origin.moved(lambda part: one_along(part, 1).unsqueeze(1).expand(shape))
            return whole._replace(feature=feature)
        if kept and not varies(origin.token, 1):
            token = one_along(origin.token, 1).unsqueeze(1).expand(shape)
        else:
            places = torch.arange(shape[2:].numel(), device=sample.device)
            token = (self.source() + places.reshape(shape[2:])).expand(shape)
        return Origin(sample, token, feature)
