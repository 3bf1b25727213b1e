"""The dispatch mode that sees every operation of a forward pass, and finds the softmaxes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from taut.models._tracking.handwritten_softmax import BegunSoftmax, HandwrittenSoftmaxes
from taut.models._tracking.index_arrays import varies
from taut.models._tracking.model_inputs import ModelInputs
from taut.models._tracking.operations import changes, op_name, tensors_in
from taut.models._tracking.origin_tracker import OriginTracker
from taut.models._tracking.product_tracker import ProductTracker
from taut.models._tracking.weight_tracker import WeightTracker
from taut.models.captured import Captured, Missed
from taut.models.fused_attention import FUSED, averaged_values, read_fused, score_origin
from taut.models.score_blocks import WrittenScores

_SOFTMAX = ("_softmax", "_safe_softmax", "softmax")
_HIDING = re.compile(r"attention|attn|transformer_encoder|softmax")
_NAMESPACES = ("aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "torchvision")

Visit = Callable[[Captured], None]


class SoftmaxCapture(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follow the inputs to softmaxes, and the outputs of softmaxes to their use."""

    supports_higher_order_operators = True

    def __init__(self, visit: Visit, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = [""]
        self.missed: list[Missed] = []
        self._thread = threading.get_ident()
        self._products = ProductTracker(model)
        self.origins = OriginTracker(self._products.fixed)
        self.inputs = ModelInputs(self.origins)
        self._visit = visit
        self._weights = WeightTracker(visit, self.origins.of)
        self._exponentials = HandwrittenSoftmaxes()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(function, torch._ops.HigherOrderOperator):  # flex_attention, torch.cond
            self._miss(f"{function}, an operator that cannot be looked into")
            return function(*args, **kwargs)
        if torch.is_inference_mode_enabled() and function is not torch.ops.prim.device.default:
            with self:  # in inference mode composite operations arrive whole
                parts = function.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        given: Any = args[0] if args else None
        if changes(function):
            self._weights.keep(args)
            if op_name(function) in ("exp", *_SOFTMAX):  # it may overwrite the scores
                given = given.clone()
                self.origins.set(given, self.origins.of(args[0]))
                self._exponentials.copied(args[0], given)
        result = function(*args, **kwargs)
        self._products.note(function, args, kwargs, result)
        self.origins.note(function, args, kwargs, result)
        self._note(function, args, kwargs, given, result)
        return result

    def _note(self, function: Any, args: Any, kwargs: Any, given: Any, result: Any) -> None:
        name = op_name(function)
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if name in _SOFTMAX and given.layout is torch.strided and not given.is_nested:
            begun = BegunSoftmax(given, args[1] % max(given.ndim, 1), self.origins.of(given))
            self._begin(begun, first)
        elif name in FUSED:
            self._fused(name, args, kwargs, first)
        elif _hidden(function) and name != "_log_softmax":
            self._miss(str(function))
        elif _strange(function, args):
            self._miss(f"{function}, an operator that cannot be looked into")
        elif isinstance(given, torch.Tensor) and isinstance(first, torch.Tensor):
            known = self._exponentials.note(name, args, given, first, self.origins.of(given))
            if known is None:
                self._weights.note(function, args, result)
            else:
                self._begin(known, first)
        else:
            self._weights.note(function, args, result)

    def _begin(self, begun: BegunSoftmax, weights: torch.Tensor) -> None:
        scores, dim, origin, plain = begun
        if scores.ndim == 0:
            return
        if not plain or scores.shape != weights.shape:
            if origin is not None and (origin.other is not None or varies(origin.token, dim)):
                self._miss("exponentials over their sum in a form that is not known")
            return
        product = self._products.of(scores) if dim == scores.ndim - 1 else None
        rows = WrittenScores(scores.detach().movedim(dim, -1))
        origin = origin and origin.moved(lambda part: part.movedim(dim, -1))
        self.origins.mark_weights(weights)
        self._weights.begin(Captured(self.path[-1], rows, product, origin), weights)

    def _fused(self, name: str, args: Any, kwargs: Any, output: torch.Tensor) -> None:
        """Attention by one kernel: its queries and keys are read, and it is visited at once."""
        call = read_fused(name, args, kwargs)
        if call is None:
            self._miss(f"{name} in a form that is not known")
            return
        scores, value = call
        query, key = (self.origins.of(t) for t in (args[0], args[1]))
        origin = score_origin(query, key, (*scores.shape, scores.keys))
        self.origins.set(output, averaged_values(origin, self.origins.of(value), output.shape))
        product = self._products.of_fused(args[0], scores)
        self._visit(Captured(self.path[-1], scores, product, origin))

    def _miss(self, operation: str) -> None:
        self.missed.append(Missed(self.path[-1], operation))

    def enter(self, name: str) -> None:
        """A module begins; one that runs in another thread is reported as missed."""
        if threading.get_ident() == self._thread:
            self.path.append(name)
        else:
            self.missed.append(Missed(name, "runs in another thread"))

    def leave(self) -> None:
        """A module ends."""
        if threading.get_ident() == self._thread:
            self.path.pop()

    def forget(self) -> None:
        """Forget softmaxes whose weights were not used; those over keys are reported as missed."""
        self.missed += self._weights.forget()
        self._exponentials.forget()


@cache
def _hidden(function: Any) -> bool:
    return bool(_HIDING.search(str(function))) and "backward" not in str(function)


@cache
def _own(function: Any) -> bool:
    return str(function.namespace) in _NAMESPACES


def _strange(function: Any, args: Any) -> bool:
    """Whether an operator is not one of PyTorch's and takes several floating-point tensors."""
    if _own(function):
        return False
    given = [t for t in tensors_in(args) if t.is_floating_point() and t.ndim >= 2]
    return len(given) > 1
