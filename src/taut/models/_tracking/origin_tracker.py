"""Follow samples, tokens and features through a forward pass.

The inputs say which axis holds samples and which tokens; linear maps make features. Splitting
features makes heads, splitting tokens makes blocks: so heads, samples and queries of a softmax are
known whatever layout a model prefers, and padding is told by the token it came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from taut.models._tracking.operations import changes, op_name, tensors_in
from taut.models._tracking.origin import (
    TOKENS,
    Origin,
    joined,
    padded,
)  # fmt: skip
from taut.models._tracking.origin_products import Factors, product, spatial
from taut.models._tracking.origin_rules import (
    embedded,
    moved_alike,
    pointwise,
    put_into,
    reduced_over,
    unfolded,
)  # fmt: skip
from taut.models._tracking.origin_store import OriginStore
from taut.models._tracking.storages import storage_key

# These move the entries of their first argument; the same operation moves their origins.
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
# These put a source into a target; the function picks the source among the arguments.
_PUTS: dict[str, Callable[[Any], Any]] = {
    "index_add": lambda args: args[3], "index_copy": lambda args: args[3],
    "scatter": lambda args: args[3], "scatter_add": lambda args: args[3],
    "index_put": lambda args: args[2], "_index_put_impl": lambda args: args[2],
}  # fmt: skip
_NOT_FOLLOWED = (RuntimeError, IndexError, TypeError, ValueError, AttributeError)
STRICT = False  # set by tests, which want to know what cannot be followed


class OriginTracker:
    """Origins of all tensors of a forward pass that depend on its inputs."""

    def __init__(self, fixed: Callable[[torch.Tensor], bool]) -> None:
        self._fixed = fixed  # whether a tensor is made of parameters alone
        self._kept: dict[int, OriginStore] = {}
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

    def _store(self, tensor: torch.Tensor) -> OriginStore:
        """The store of a tensor's storage; ids of freed storages are used again."""
        kept = self._kept.get(storage_key(tensor))
        if kept is None or kept.dead:
            kept = self._kept[storage_key(tensor)] = OriginStore(tensor)
        return kept

    def mark_weights(self, tensor: torch.Tensor) -> None:
        """Say that a tensor holds the weights of a softmax."""
        origin = self.of(tensor)
        if origin is not None:
            self.set(tensor, origin._replace(weights=True))

    def note(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note one operation of PyTorch."""
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
        except _NOT_FOLLOWED:  # used in an unknown way: no origin
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
        return self._computed(name, function, args, kwargs, results, given)

    def _computed(
        self, name: str, function: Any, args: Any, kwargs: Any, results: Any, given: Any
    ) -> list[Origin | None]:
        """Operations that neither move entries nor multiply matrices."""
        result, (first, origin) = results[0], given[0]
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
            return [spatial(whole, result, self.source, channels=True)]
        if name == "im2col":
            return [unfolded(function, args, kwargs, origin)]
        if any(part in name for part in _SPATIAL) and first is args[0] and first.ndim >= 3:
            return [spatial(origin, result, self.source, channels="conv" in name)]
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
        """A product of matrices, or of a matrix and a vector."""
        theirs, shape = self.of(right), tuple(result.shape)
        if right.ndim == 1:
            theirs = theirs and theirs.moved(lambda part: part[:, None])
            shape = (*shape, 1)
        factors = Factors(left, right, self.of(left), theirs)
        found = product(factors, shape, self._fixed, self.source)
        return None if found is None else found.reshape(result.shape)
