"""Watch every attention softmax of a model, without editing it.

A dispatch mode sees all operations that PyTorch runs. A softmax is attention if values are averaged
by what comes out of it; this tells it from the routers of mixtures of experts and from classifiers.
Fused attention hides its scores, so it is switched to its plain form for the time being; where one
is met nevertheless, it is reported as missed, and so is whatever else cannot be seen.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from taut.audit._exponentials import Begun, Exponentials
from taut.audit._origin import varies
from taut.audit._origins import Origins
from taut.audit._product import Products
from taut.audit._seen import Missed, Seen
from taut.audit._sources import Sources, told_apart
from taut.audit._tensors import changes, op_name, tensors_in
from taut.audit._weights import Weights

_SOFTMAX = ("_softmax", "_safe_softmax", "softmax")
_FUSED = re.compile(r"attention|attn|transformer_encoder|softmax")
_NAMESPACES = ("aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "torchvision")

Visit = Callable[[Seen], None]


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follow the inputs to softmaxes, and the outputs of softmaxes to their use."""

    supports_higher_order_operators = True

    def __init__(self, visit: Visit, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = [""]
        self.missed: list[Missed] = []
        self._thread = threading.get_ident()
        self._products = Products(model)
        self.origins = Origins(self._products.fixed)
        self.sources = Sources(self.origins)
        self._weights = Weights(visit, self.origins.of)
        self._exponentials = Exponentials()

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
        self._note(function, args, given, result)
        return result

    def _note(self, function: Any, args: Any, given: Any, result: Any) -> None:
        name = op_name(function)
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if name in _SOFTMAX and given.layout is torch.strided and not given.is_nested:
            begun = Begun(given, args[1] % max(given.ndim, 1), self.origins.of(given))
            self._begin(begun, first)
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

    def _begin(self, begun: Begun, weights: torch.Tensor) -> None:
        scores, dim, origin, plain = begun
        if scores.ndim == 0:
            return
        if not plain or scores.shape != weights.shape:
            if origin is not None and (origin.other is not None or varies(origin.token, dim)):
                self._miss("exponentials over their sum in a form that is not known")
            return
        product = self._products.of(scores) if dim == scores.ndim - 1 else None
        rows, shares = (t.detach().movedim(dim, -1) for t in (scores, weights))
        origin = origin and origin.moved(lambda part: part.movedim(dim, -1))
        self.origins.mark_weights(weights)
        self._weights.begin(Seen(self.path[-1], rows, shares, dim, product, origin), weights)

    def _miss(self, operation: str) -> None:
        self.missed.append(Missed(self.path[-1], operation))

    def enter(self, name: str) -> None:
        """A module begins; what runs in another thread than the capture is not seen."""
        if threading.get_ident() == self._thread:
            self.path.append(name)
        else:
            self.missed.append(Missed(name, "runs in another thread"))

    def leave(self) -> None:
        """A module ends."""
        if threading.get_ident() == self._thread:
            self.path.pop()

    def forget(self) -> None:
        """Let go of softmaxes whose weights were not used; those over keys are reported."""
        self.missed += self._weights.forget()
        self._exponentials.forget()


@cache
def _hidden(function: Any) -> bool:
    return bool(_FUSED.search(str(function))) and "backward" not in str(function)


@cache
def _own(function: Any) -> bool:
    return str(function.namespace) in _NAMESPACES


def _strange(function: Any, args: Any) -> bool:
    """Whether an operator is none of PyTorch's own and takes several tensors of numbers."""
    if _own(function):
        return False
    given = [t for t in tensors_in(args) if t.is_floating_point() and t.ndim >= 2]
    return len(given) > 1


@contextmanager
def capture(model: nn.Module, visit: Visit) -> Iterator[Watch]:
    """Call ``visit`` for every softmax of attention that the model runs meanwhile.

    What a visitor needs it must take at once: the tensors are the model's own. Attention
    implementation, hooks and switches are as before afterwards, also after an error.
    """
    plain: Any = getattr(model, "_orig_mod", model)  # of a compiled model
    for name, module in plain.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"the submodule {name} is scripted and" if name else "a scripted model"
            raise TypeError(f"{what} cannot be watched; give the one it was made from")
    watch = Watch(visit, plain)
    with ExitStack() as stack:
        for name, module in plain.named_modules():
            enter, leave = _steps(watch, name)
            stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
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


def real_rows(watch: Watch, output: torch.Tensor) -> torch.Tensor | None:
    """Which rows of something that the model gave out are no padding; None if all are."""
    origin = watch.origins.of(output)
    if origin is None:
        return None
    rows = origin.along(-1)
    return watch.sources.real(rows.sample, rows.token)


def _steps(watch: Watch, name: str) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Hooks that note which module runs, and what the model as a whole reads."""

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        watch.enter(name)
        if name or len(watch.path) > 2:  # a model may also call itself, on parts of its input
            return None
        args = told_apart(args)
        kwargs = told_apart(kwargs, args)
        watch.sources.begin(module, args, kwargs)
        return args, kwargs

    def leave(*_: Any) -> None:
        watch.leave()

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
