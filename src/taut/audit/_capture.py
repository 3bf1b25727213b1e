"""Watch every attention softmax of a model, without editing it.

A dispatch mode sees all operations that PyTorch runs. A softmax is attention if what comes out of
it is multiplied with values by a matrix product; this tells it from the routers of mixtures of
experts and from classifiers. Fused attention hides its scores, so it is switched to its plain form
for the time being; where one is met nevertheless, it is reported as missed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from taut.audit._product import Product, Products

_ATEN = torch.ops.aten
_FUSED = re.compile(r"attention|attn|transformer_encoder")
# What may happen to weights between the softmax and the product with the values.
_CROPS = (_ATEN.slice, _ATEN.expand, _ATEN.constant_pad_nd, _ATEN.as_strided)


class Seen(NamedTuple):
    """One softmax of attention."""

    path: str  # of the module that ran it
    scores: torch.Tensor  # what went in, the keys last
    weights: torch.Tensor  # what came out, laid out alike
    dim: int  # along which it was taken, counted from the front
    product: Product | None = None  # the keys that the scores came from, where this is known


class Missed(NamedTuple):
    """Attention whose scores could not be seen."""

    path: str
    operation: str


Visit = Callable[[Seen], None]


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follow the outputs of softmaxes until they meet a matrix product."""

    def __init__(self, visit: Visit) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.visit = visit
        self.path = [""]
        self.missed: list[Missed] = []
        self._products = Products()
        # By storage: what was seen, emptied once visited, and the tensor, so that it stays alive.
        self._flow: dict[int, tuple[list[Seen], torch.Tensor]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and function is not torch.ops.prim.device.default:
            with self:  # in inference mode composite operations arrive whole
                parts = function.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = function(*args, **kwargs)
        self._products.note(function, args, kwargs, result)
        self._note(function, args, result)
        return result

    def _note(self, function: Any, args: Any, result: Any) -> None:
        packet = getattr(function, "overloadpacket", None)
        first = result[0] if isinstance(result, tuple) else result
        if packet in (_ATEN._softmax, _ATEN._safe_softmax):
            dim = args[1] % args[0].ndim
            scores, weights = (t.detach().movedim(dim, -1) for t in (args[0], first))
            last = dim == args[0].ndim - 1
            product = self._products.of(args[0]) if last else None
            seen = Seen(self.path[-1], scores, weights, dim, product)
            self._flow[_storage(first)] = ([seen], first)
        elif packet in (_ATEN.bmm, _ATEN.mm):
            for factor in args[:2]:
                found, _ = self._flow.pop(_storage(factor), ([], None))
                while found:  # several names of one softmax: visited once
                    self.visit(found.pop())
        elif _FUSED.search(str(function)) and "backward" not in str(function):
            self.missed.append(Missed(self.path[-1], str(function)))
        elif args and isinstance(args[0], torch.Tensor) and isinstance(first, torch.Tensor):
            known = self._flow.get(_storage(args[0]))
            same = first.numel() == args[0].numel() or packet in _CROPS
            if known and same and first.is_floating_point():
                self._flow[_storage(first)] = (known[0], first)  # cast, dropout, view, crop

    def forget(self) -> None:
        """Let go of softmaxes that were not attention."""
        self._flow.clear()


def _storage(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr() if isinstance(tensor, torch.Tensor) else -1


@contextmanager
def capture(model: nn.Module, visit: Visit) -> Iterator[_Watch]:
    """Call ``visit`` for every softmax of attention that the model runs meanwhile.

    What a visitor needs it must take at once: the tensors are the model's own. Attention
    implementation, hooks and switches are as before afterwards, also after an error.
    """
    plain: Any = getattr(model, "_orig_mod", model)  # of a compiled model
    watch = _Watch(visit)
    with ExitStack() as stack:
        for name, module in plain.named_modules():
            enter, leave = _steps(watch, name)
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        _eager(plain, stack)
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(watch.forget)
        stack.enter_context(watch)
        yield watch


def _steps(watch: _Watch, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """Hooks that note which module runs. They return nothing, so they change nothing."""

    def enter(*_: Any) -> None:
        watch.path.append(name)

    def leave(*_: Any) -> None:
        watch.path.pop()

    return enter, leave


def _eager(model: Any, stack: ExitStack) -> None:
    """The plain implementation, which puts soft caps, sinks and biases into the scores."""
    if not hasattr(model, "set_attn_implementation"):
        return
    configs = {
        id(m.config): (m.config, m.config._attn_implementation)
        for m in model.modules()
        if hasattr(getattr(m, "config", None), "_attn_implementation")
    }

    def restore() -> None:
        for config, implementation in configs.values():
            config._attn_implementation = implementation

    stack.callback(restore)
    model.set_attn_implementation("eager")
