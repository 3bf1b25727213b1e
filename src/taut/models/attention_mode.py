"""A mode that sees every call of attention in a pass of a model, and where in the model it is.

What is done about a call is for subclasses to say: take its gradients, or disturb one of its heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from taut.models.architectures.registry import number_of_heads
from taut.models.attention_calls import added_mask, split_heads, widened
from taut.models.score_blocks import FusedScores


class FusedAttention(NamedTuple):
    """Arguments of scaled_dot_product_attention, (samples, heads, tokens, width), in float32.

    Keys and values that several query heads share are repeated: each head has its own view.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    bias: torch.Tensor | None
    factor: float
    causal: bool

    def scores(self, first: int, last: int) -> torch.Tensor:
        """Scores of the queries from ``first`` until before ``last``, minus infinity if hidden."""
        reader = FusedScores(self.query, self.key, self.bias, self.factor, self.causal)
        return reader.of_queries(first, last)


class AttentionMode(TorchFunctionMode):
    """Hands each call of scaled_dot_product_attention to ``fused``, and the rest to ``other``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.modules = dict(model.named_modules())
        self.path = [""]
        self.calls: dict[str, int] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the function, as subclasses say."""
        kwargs = kwargs or {}
        if function is functional.multi_head_attention_forward:
            with self._inside():
                return function(*args, **kwargs)
        if function is functional.scaled_dot_product_attention:
            return self.fused(function, args, kwargs)
        return self.other(function, args, kwargs)

    def fused(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a fused attention."""
        return function(*args, **kwargs)

    def other(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run any other function."""
        return function(*args, **kwargs)

    def place(self) -> tuple[str, int]:
        """The module that runs now, and which of its attentions this is, from 1 on."""
        path = self.path[-1]
        self.calls[path] = self.calls.get(path, 0) + 1
        return path, self.calls[path]

    @property
    def heads(self) -> int:
        """Number of heads of the module that runs now; 1 if it does not say."""
        return number_of_heads(self.modules.get(self.path[-1])) or 1

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Look into torch's own multi-head attention, which hands itself to a mode as a whole."""
        here: Any = functional
        asked = here.has_torch_function
        here.has_torch_function = lambda _: False
        try:
            with self:
                yield
        finally:
            here.has_torch_function = asked


def fused_arguments(heads: int, args: Any, kwargs: Any) -> FusedAttention:
    """The arguments of a call of scaled_dot_product_attention in one form."""
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    q, k, v = (
        split_heads(widened(given[name].detach()), heads) for name in ("query", "key", "value")
    )
    k, v = (
        t if t.shape[1] == q.shape[1] else t.repeat_interleave(q.shape[1] // t.shape[1], dim=1)
        for t in (k, v)
    )
    mask, scale = given.get("attn_mask"), given.get("scale")
    bias = None if mask is None else added_mask(mask.detach(), q, heads)
    factor = q.shape[-1] ** -0.5 if scale is None else float(scale)
    return FusedAttention(q, k, v, bias, factor, bool(given.get("is_causal", False)))


_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


@contextmanager
def watched(model: nn.Module, mode: AttentionMode) -> Iterator[None]:
    """Let a mode see the passes of a model; nothing of the model is left changed."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            enter, leave = _steps(mode, name)
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(mode)
        yield


def _steps(mode: AttentionMode, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """Hooks that note which module runs; a pass of the whole model counts its calls anew."""

    def enter(*_: Any) -> None:
        if not name and len(mode.path) == 1:
            mode.calls.clear()
        mode.path.append(name)

    def leave(*_: Any) -> None:
        mode.path.pop()

    return enter, leave
