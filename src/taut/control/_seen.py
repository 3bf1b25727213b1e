"""See the queries and keys of attention modules in a training pass, with their gradients.

Inside a module known to be attention, calls of scaled_dot_product_attention and softmax are noticed
on their way: the model computes what it would, and a penalty is made of what went in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from taut.audit._layout import heads_of
from taut.control._affinity import HIDDEN, AffinityPenalty, Asked

_SOFTMAX = (torch.softmax, functional.softmax, torch.Tensor.softmax)
Note = Callable[[torch.Tensor], None]


class Noticed(TorchFunctionMode):
    """While it is on, every attention gives a term: the mean over samples, the sum over heads."""

    def __init__(self, note: Note, probes: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.note, self.probes, self.generator = note, probes, generator
        self.heads: int | None = None  # of the module that runs

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the function; make a term if it is attention."""
        kwargs = kwargs or {}
        if function is functional.multi_head_attention_forward:
            with self._inside():
                return function(*args, **kwargs)
        result = function(*args, **kwargs)
        if function is functional.scaled_dot_product_attention:
            self.note(self._from_products(*args, **kwargs))
        elif function in _SOFTMAX and result.ndim >= 3:
            self.note(_from_weights(args[0], result) / self._samples(result))
        return result

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """A mode is off within the functions it sees: here the calls themselves are exchanged."""
        products, softmax = functional.scaled_dot_product_attention, functional.softmax

        def seen(*args: Any, **kwargs: Any) -> Any:
            self.note(self._from_products(*args, **kwargs))
            return products(*args, **kwargs)

        def weighed(*args: Any, **kwargs: Any) -> Any:
            result = softmax(*args, **kwargs)
            self.note(_from_weights(args[0], result) / self._samples(result))
            return result

        functional.scaled_dot_product_attention, functional.softmax = seen, weighed
        try:
            yield
        finally:
            functional.scaled_dot_product_attention, functional.softmax = products, softmax

    def _from_products(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        with torch.autocast(query.device.type, enabled=False):
            q, k = (t.float() if t.dtype != torch.float64 else t for t in (query, key))
            if k.shape[1] != q.shape[1]:  # grouped heads
                k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
            bias = None if attn_mask is None else _bias(attn_mask, q, k)
            factor = q.shape[-1] ** -0.5 if scale is None else scale
            asked = Asked(factor, is_causal, self.probes, self.generator)
            groups = q.flatten(0, -3), k.flatten(0, -3)
            total: torch.Tensor = AffinityPenalty.apply(*groups, bias, asked)  # type: ignore[no-untyped-call]
        return total / self._samples(q)

    def _samples(self, tensor: torch.Tensor) -> int:
        """Samples of a batch of matrices, which may have joined them with the heads."""
        if tensor.ndim > 3 or self.heads is None:
            return len(tensor) if tensor.ndim > 3 else 1
        return max(1, len(tensor) // self.heads)


def _bias(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """What is added to the scores, for every group of heads or for all alike."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    mask = mask.to(q.dtype)
    if mask.ndim <= 2 or mask.shape[:-2].numel() == 1:
        return mask.reshape(-1, *mask.shape[-2:])[:1]
    return mask.expand(*q.shape[:-1], k.shape[-2]).flatten(0, -3)


def _from_weights(scores: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """From the weights themselves, where the model forms them: their memory is spent already."""
    weights = weights.float() if weights.dtype != torch.float64 else weights
    tokens, keys = weights.shape[-2:]
    visible = scores.detach() > HIDDEN
    seen = visible.any(dim=-2)
    if tokens == keys:
        weights = weights * seen[..., :, None]
    gram = weights.mT @ weights if keys <= tokens else weights @ weights.mT
    return gram.square().sum() - 2 * weights.square().sum() + seen.sum()


def watch(modules: dict[str, nn.Module], mode: Noticed, active: Callable[[], bool]) -> list[Any]:
    """Switch the mode on inside these modules; the handles that take the hooks away again."""
    depth: list[bool] = []

    def enter(module: nn.Module, _: Any) -> None:
        mode.heads = heads_of(module)
        depth.append(active() and torch.is_grad_enabled())
        if depth[-1]:
            mode.__enter__()  # type: ignore[no-untyped-call]

    def leave(*_: Any) -> None:
        if depth and depth.pop():
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    handles = []
    for module in modules.values():
        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))
    return handles
