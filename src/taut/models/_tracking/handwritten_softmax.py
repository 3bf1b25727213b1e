"""Softmaxes that are written out: exponentials over their sum, and exponentials of logarithms.

`log_softmax`, or x − logsumexp(x), gives logarithms of weights, and `exp` turns them into weights,
whatever was done to them in between. Exponentials that are divided by their own sum are weights
too; if something was added to the sum they are not, and this is said.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from taut.models._tracking.origin import Origin
from taut.models._tracking.storages import ByStorage, storage

_PRODUCTS = ("bmm", "mm", "baddbmm", "addmm")
_RATIOS = ("div", "divide", "true_divide")
_COPIES = ("clone", "_to_copy", "copy", "expand", "alias", "detach")
_ADDITIONS = ("add", "clamp", "clamp_min", "maximum", "mul")


class BegunSoftmax(NamedTuple):
    """A softmax that was recognised: its input, its axis, and whether it is a plain softmax."""

    scores: torch.Tensor
    dim: int
    origin: Origin | None
    plain: bool = True


class _Sum(NamedTuple):
    of: BegunSoftmax  # the exponentials
    dim: int | None
    plain: bool


class HandwrittenSoftmaxes:
    """Follows logarithms of weights, exponentials and their sums."""

    def __init__(self) -> None:
        self._logs: ByStorage[BegunSoftmax] = ByStorage()
        self._totals: ByStorage[BegunSoftmax] = ByStorage()  # of logsumexp
        self._exponentials: ByStorage[BegunSoftmax] = ByStorage()
        self._sums: ByStorage[_Sum] = ByStorage()

    def forget(self) -> None:
        """Drop everything at the end of a forward pass."""
        for kept in (self._logs, self._totals, self._exponentials, self._sums):
            kept.clear()

    def copied(self, given: torch.Tensor, copy: torch.Tensor) -> None:
        """Treat a copy like the original, which is about to be overwritten."""
        if (logs := self._logs.get(given)) is not None:
            self._logs.set(copy, logs)

    def note(
        self, name: str, args: Any, given: torch.Tensor, result: torch.Tensor, origin: Origin | None
    ) -> BegunSoftmax | None:
        """Note an operation on a tensor; return the softmax that it completes, if any."""
        if name in ("_log_softmax", "log_softmax"):
            self._logs.set(result, BegunSoftmax(given, args[1] % given.ndim, origin))
        elif name == "exp":
            if (logs := self._logs.get(given)) is not None:
                return logs
            self._exponentials.set(result, BegunSoftmax(given, -1, origin))
        elif name == "logsumexp":
            if (dim := _axis(args, given)) is not None:
                self._totals.set(result, BegunSoftmax(given, dim, origin))
        elif name in _PRODUCTS:
            return self._product(args)
        elif name == "sum" and (begun := self._exponentials.get(given)) is not None:
            self._sums.set(result, _Sum(begun, _axis(args, given), True))
        elif len(args) > 1 and isinstance(args[1], torch.Tensor):
            return self._pair(name, given, args[1], result)
        else:
            self._follow(name, given, result)
        return None

    def _pair(
        self, name: str, first: torch.Tensor, second: torch.Tensor, result: torch.Tensor
    ) -> BegunSoftmax | None:
        total, exponentials = self._totals.get(second), self._exponentials.get(first)
        if name == "sub" and total is not None and storage(total.scores) == storage(first):
            self._logs.set(result, total)
            return None
        added = self._sums.get(second)
        same = (
            added is not None
            and exponentials is not None
            and (
                added.of is exponentials or storage(added.of.scores) == storage(exponentials.scores)
            )
        )
        if exponentials is not None and added is not None and same:
            self._exponentials.drop(first)  # if written in place, they are weights now
            plain = added.plain and added.dim is not None and name in _RATIOS
            return exponentials._replace(dim=added.dim or 0, plain=plain and exponentials.plain)
        self._follow(name, first, result)
        self._follow(name, second, result)
        return None

    def _product(self, args: Any) -> BegunSoftmax | None:
        """Exponentials of scores that multiply values before they are divided by their sum."""
        for factor in args:
            begun = self._exponentials.get(factor)
            if begun is not None and begun.origin is not None and begun.origin.other is not None:
                return begun._replace(dim=0, plain=False)
        return None

    def _follow(self, name: str, given: torch.Tensor, result: torch.Tensor) -> None:
        """Other operations: logarithms stay logarithms; a sum that is added to is no plain sum."""
        if not result.is_floating_point() or storage(given) == storage(result):
            if (total := self._sums.get(given)) is not None and name in _ADDITIONS:
                self._sums.set(given, total._replace(plain=False))
            return
        if (logs := self._logs.get(given)) is not None and result.shape == logs.scores.shape:
            self._logs.set(result, logs)
        same = name in _COPIES
        if (begun := self._exponentials.get(given)) is not None and result.shape == given.shape:
            self._exponentials.set(result, begun._replace(plain=begun.plain and same))
        if (total := self._sums.get(given)) is not None:
            self._sums.set(result, total._replace(plain=total.plain and same))


def _axis(args: Any, given: torch.Tensor) -> int | None:
    """The one axis of a sum, or None."""
    dims = args[1] if len(args) > 1 else None
    dims = [dims] if isinstance(dims, int) else dims
    return dims[0] % given.ndim if isinstance(dims, (list, tuple)) and len(dims) == 1 else None
