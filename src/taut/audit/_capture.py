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
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from taut.audit._product import Product, Products, changes

_ATEN = torch.ops.aten
_FUSED = re.compile(r"attention|attn|transformer_encoder|masked_softmax")
# What may happen to weights between the softmax and the product with the values.
_CROPS = (
    _ATEN.slice, _ATEN.expand, _ATEN.constant_pad_nd, _ATEN.as_strided, _ATEN.cat, _ATEN.stack,
    _ATEN.repeat, _ATEN.index_select, _ATEN.index, _ATEN.gather, _ATEN.topk, _ATEN.where,
    _ATEN.copy_,
)  # fmt: skip
_MEETINGS = (_ATEN.bmm, _ATEN.mm, _ATEN.baddbmm, _ATEN.addmm, _ATEN.mv, _ATEN.addmv)


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

    def __init__(self, visit: Visit, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.visit = visit
        self.path = [""]
        self.missed: list[Missed] = []
        self._products = Products(model)
        # By storage: what was seen and not visited yet, and the tensor, so that it stays alive.
        self._flow: dict[int, tuple[list[Seen], torch.Tensor]] = {}
        self._logs: dict[int, tuple[torch.Tensor, int]] = {}  # log-softmaxes, that exp may follow
        self._open: list[list[Seen]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and function is not torch.ops.prim.device.default:
            with self:  # in inference mode composite operations arrive whole
                parts = function.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if changes(function):
            self._keep(args)
        result = function(*args, **kwargs)
        self._products.note(function, args, kwargs, result)
        self._note(function, args, result)
        return result

    def _note(self, function: Any, args: Any, result: Any) -> None:
        packet = getattr(function, "overloadpacket", None)
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if packet in (_ATEN._softmax, _ATEN._safe_softmax, _ATEN.softmax):
            self._begin(args[0], args[1], first)
        elif packet is _ATEN._log_softmax:
            self._logs = {_storage(first): (args[0], args[1])}
        elif packet is _ATEN.exp and _storage(args[0]) in self._logs:
            self._begin(*self._logs.pop(_storage(args[0])), first)
        elif packet in _MEETINGS and not (packet is _ATEN.addmm and self._products.fixed(args[2])):
            for factor in _tensors(args):
                found, _ = self._flow.pop(_storage(factor), ([], None))
                while found:  # several names of one softmax: visited once
                    self.visit(found.pop())
        elif _fused(function):
            self.missed.append(Missed(self.path[-1], str(function)))
        elif isinstance(first, torch.Tensor) and first.is_floating_point():
            self._flow_on(packet, args, first)

    def _begin(self, scores: torch.Tensor, dim: int, weights: torch.Tensor) -> None:
        dim = dim % scores.ndim
        product = self._products.of(scores) if dim == scores.ndim - 1 else None
        rows, shares = (t.detach().movedim(dim, -1) for t in (scores, weights))
        seen = [Seen(self.path[-1], rows, shares, dim, product)]
        self._open = [*filter(None, self._open), seen]
        self._flow[_storage(weights)] = (seen, weights)

    def _flow_on(self, packet: Any, args: Any, result: torch.Tensor) -> None:
        """Casts, dropout, gates, crops and joins of weights are still weights."""
        into: list[Seen] = []
        for given in _tensors(args):
            known = self._flow.get(_storage(given))
            same = result.numel() == given.numel() or packet in _CROPS
            if known and known[0] and same:
                if not into:
                    into = known[0]
                elif known[0] is not into:  # two softmaxes in one tensor
                    into += known[0]
                    known[0].clear()
        if into:
            self._flow[_storage(result)] = (into, result)

    def _keep(self, args: Any) -> None:
        """Something is about to be written: what was seen of it is copied first."""
        if not any(self._open):
            return
        written = {_storage(tensor) for tensor in _tensors(args)}
        for seen in filter(None, self._open):
            for i, each in enumerate(seen):
                if _storage(each.scores) in written or _storage(each.weights) in written:
                    scores, weights = each.scores.clone(), each.weights.clone()
                    seen[i] = each._replace(scores=scores, weights=weights)

    def forget(self) -> None:
        """Let go of softmaxes that met no product; those of heads cannot be anything else."""
        for seen in filter(None, self._open):
            heads = [each for each in seen if each.scores.ndim >= 4]
            self.missed += [Missed(each.path, "softmax without a product") for each in heads]
            seen.clear()
        self._flow.clear()
        self._logs.clear()


@cache
def _fused(function: Any) -> bool:
    return bool(_FUSED.search(str(function))) and "backward" not in str(function)


def _storage(tensor: Any) -> int:
    strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return tensor.untyped_storage().data_ptr() if strided else -1


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    for value in args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


@contextmanager
def capture(model: nn.Module, visit: Visit) -> Iterator[_Watch]:
    """Call ``visit`` for every softmax of attention that the model runs meanwhile.

    What a visitor needs it must take at once: the tensors are the model's own. Attention
    implementation, hooks and switches are as before afterwards, also after an error.
    """
    plain: Any = getattr(model, "_orig_mod", model)  # of a compiled model
    if isinstance(plain, torch.jit.ScriptModule):
        raise TypeError("a scripted model cannot be watched; give the one it was made from")
    watch = _Watch(visit, plain)
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
    named = [m for m in model.modules() if hasattr(m, "set_attn_implementation")]
    configs = {
        id(m.config): (m.config, m.config._attn_implementation)
        for m in model.modules()
        if hasattr(getattr(m, "config", None), "_attn_implementation")
    }
    # taut's own functions are other maps; they show their scores as they are.
    own = [c for c, chosen in configs.values() if str(chosen).startswith("taut-")]

    def restore() -> None:
        for config, implementation in configs.values():
            config._attn_implementation = implementation

    stack.callback(restore)
    for module in named:
        if not any(getattr(part, "config", None) in own for part in module.modules()):
            module.set_attn_implementation("eager")
