"""Follow the weights of softmaxes to their use: attention is what multiplies values by them.

A softmax over keys is told from others by what it is taken over: products of queries and keys, or
the tokens of a sequence. One over features (classes, experts, bins of depth) is attention only if
its weights average what belongs to different tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from taut.models._tracking.index_arrays import varies
from taut.models._tracking.operations import op_name, tensors_in, views
from taut.models._tracking.origin import Origin
from taut.models._tracking.storages import storage
from taut.models.captured import Captured, Missed
from taut.models.score_blocks import WrittenScores

# What may happen to weights between the softmax and the product with the values.
_CROPS = {
    "slice", "expand", "constant_pad_nd", "as_strided", "cat", "stack", "repeat", "index_select",
    "index", "gather", "topk", "where", "copy", "repeat_interleave",
}  # fmt: skip
_COPIES = {"clone", "_to_copy", "native_dropout", "_unsafe_view", "_fused_dropout", "bernoulli"}
_MEETINGS = {"bmm": 0, "mm": 0, "baddbmm": 1, "addmm": 1, "mv": 0, "addmv": 1, "convolution": 0}
# Looking at weights, or choosing by them, is no use of them as weights.
_LOOKS = {
    "max", "min", "amax", "amin", "argmax", "sum", "mean", "var", "std", "norm", "topk", "sort",
    "linalg_vector_norm", "isnan", "any", "all", "median", "cumsum", "multinomial", "histc",
    "empty_like", "zeros_like", "ones_like", "rand_like", "randn_like", "logsumexp", "prod",
}  # fmt: skip


@cache
def _keeps(function: Any) -> bool:
    """Whether an operation leaves entries what they are, one by one, or only moves them."""
    name = op_name(function)
    return torch.Tag.pointwise in function.tags or views(function) or name in _CROPS | _COPIES


class PendingSoftmax:
    """A softmax whose weights were not used yet."""

    def __init__(self, seen: Captured) -> None:
        self.seen = seen
        self.done = False
        self.lost = ""  # the operation that took the weights, if it is not one that is followed
        origin = seen.origin
        self.known = origin is not None
        self.over_keys = origin is not None and (
            origin.other is not None or varies(origin.token, -1)
        )


class WeightTracker:
    """The weights of all softmaxes of a forward pass, by their storages."""

    def __init__(
        self,
        visit: Callable[[Captured], None],
        origin: Callable[[Any], Origin | None],
    ) -> None:
        self._visit, self._origin = visit, origin
        # By storage: softmaxes, whether values were multiplied by them, the tensor (to stay alive).
        self._flow: dict[int, tuple[list[PendingSoftmax], bool, torch.Tensor]] = {}
        self._open: list[PendingSoftmax] = []

    def begin(self, seen: Captured, weights: torch.Tensor) -> None:
        """A softmax was run."""
        pending = PendingSoftmax(seen)
        self._open = [each for each in self._open if not each.done]
        self._open.append(pending)
        self._flow[storage(weights)] = ([pending], False, weights)

    def note(self, function: Any, args: Any, result: Any) -> None:
        """Note any other operation."""
        if not self._flow:
            return
        known = [(t, self._flow[key]) for t in tensors_in(args)
                 if (key := storage(t)) in self._flow]  # fmt: skip
        if not known:
            return
        name = op_name(function)
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if name in _MEETINGS:
            self._meet(name, args, known)
        elif name in ("sum", "mean", "nansum") and any(flow[1] for _, flow in known):
            self._add_up(args, known)
        elif isinstance(first, torch.Tensor) and first.is_floating_point():
            self._flow_on(function, args, known, first)

    def _meet(self, name: str, args: Any, known: Any) -> None:
        """A product of matrices."""
        left, right = args[_MEETINGS[name] : _MEETINGS[name] + 2]
        for factor, (found, _, _) in known:
            if factor is not left and factor is not right:
                continue
            values, axis = (right, -2) if factor is left else (left, -1)
            across = self._across(factor, -1 if factor is left else -2)
            for pending in found:
                # Where nothing is known of the scores, every product of matrices counts.
                averages = across and self._averages(values, axis)
                if not pending.known or pending.over_keys or averages:
                    self._use(pending)

    def _across(self, weights: torch.Tensor, axis: int) -> bool:
        """Whether a product sums over the features that a softmax was taken over."""
        origin = self._origin(weights)
        return origin is None or weights.ndim < 2 or varies(origin.feature, axis)

    def _averages(self, values: torch.Tensor, axis: int) -> bool:
        """Whether what weights over features multiply belongs to different tokens."""
        origin = self._origin(values)
        return origin is not None and values.ndim > 1 and varies(origin.token, axis)

    def _add_up(self, args: Any, known: Any) -> None:
        """A sum of products of weights and values."""
        tensor, (found, _, _) = known[0]
        dims = args[1] if len(args) > 1 else None
        dims = [dims] if isinstance(dims, int) else dims or range(tensor.ndim)
        origin = self._origin(tensor)
        across = origin is not None and any(varies(origin.token, dim) for dim in dims)
        for pending in found:
            if not pending.known or pending.over_keys or across:
                self._use(pending)

    def _flow_on(self, function: Any, args: Any, known: Any, result: torch.Tensor) -> None:
        """Casts, dropout, gates, crops and joins of weights are still weights."""
        name = op_name(function)
        into: list[PendingSoftmax] = []
        times = False
        for tensor, (found, multiplied, _) in known:
            grows = name in ("mul", "multiply") and result.numel() > tensor.numel()
            same = result.numel() == tensor.numel() or name in _CROPS
            if grows or same:
                values = [t for t in tensors_in(args) if storage(t) not in self._flow]
                times |= multiplied or grows or (name == "mul" and any(map(self._origin, values)))
                into += [pending for pending in found if pending not in into]
            if grows or (name not in _LOOKS and not (same and _keeps(function))):
                for pending in found:
                    pending.lost = pending.lost or name
        if into:
            key = storage(result)
            before = self._flow[key][0] if key in self._flow else []
            into += [pending for pending in before if pending not in into]
            self._flow[key] = (into, times, result)

    def _use(self, pending: PendingSoftmax) -> None:
        if pending.done:
            return
        pending.done = True
        self._visit(pending.seen)
        self._flow = {
            key: flow for key, flow in self._flow.items() if not all(p.done for p in flow[0])
        }

    def keep(self, args: Any) -> None:
        """Copy captured tensors that are about to be overwritten."""
        waiting = [pending for pending in self._open if not pending.done]
        if not waiting:
            return
        written = {storage(tensor) for tensor in tensors_in(args)}
        for pending in waiting:
            seen = pending.seen
            if storage(seen.scores) in written:
                pending.seen = seen._replace(reader=WrittenScores(seen.scores.clone()))

    def forget(self) -> list[Missed]:
        """End a pass; return softmaxes over keys whose weights were not followed to their use."""
        missed = []
        for pending in self._open:
            heads = pending.seen.scores.ndim >= 4
            if pending.done or not (pending.over_keys or (heads and not pending.known)):
                continue
            if pending.seen.scores.shape[-1] == 1:  # the weight of a single key is always 1
                continue
            if pending.lost:
                missed.append(
                    Missed(pending.seen.path, f"weights of a softmax go into {pending.lost}")
                )
            elif heads:
                missed.append(Missed(pending.seen.path, "softmax without a product"))
        self._open, self._flow = [], {}
        return missed
