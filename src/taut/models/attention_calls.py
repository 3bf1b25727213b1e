"""See the calls that compute attention, with the gradients of queries, keys and scores.

Inside a module that is known to be attention, calls of scaled_dot_product_attention and softmax are
observed: the model computes what it would without this, and their arguments are reported.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from taut.models.masks import visible_mask

_SOFTMAX = (torch.softmax, functional.softmax, torch.Tensor.softmax)


class Products(NamedTuple):
    """Attention that a kernel computes: queries and keys (samples, heads, tokens, width)."""

    path: str
    query: torch.Tensor
    key: torch.Tensor
    bias: torch.Tensor | None  # added to the scores
    factor: float
    causal: bool
    own: bool = True  # whether a sequence attends to itself


class Scores(NamedTuple):
    """Attention that a model writes out: scores and weights (samples, heads, queries, keys)."""

    path: str
    scores: torch.Tensor
    weights: torch.Tensor
    own: bool = True  # whether a sequence attends to itself


Note = Callable[[Products | Scores], None]


class AttentionCalls(TorchFunctionMode):
    """Mode that reports every attention of a module with so many heads, under an empty path."""

    def __init__(self, heads: int, own: bool, note: Note) -> None:
        super().__init__()
        self.heads, self.own, self.note = heads, own, note

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the function; report its arguments if it computes attention."""
        kwargs = kwargs or {}
        if function is functional.multi_head_attention_forward:
            with self._inside():
                return function(*args, **kwargs)
        result = function(*args, **kwargs)
        if function is functional.scaled_dot_product_attention:
            self._products(*args, **kwargs)
        elif function in _SOFTMAX and result.ndim >= 3:
            self._scores(args[0] if args else kwargs["input"], result)
        return result

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Exchange the functions themselves: a mode is off within the functions it sees."""
        products, softmax = functional.scaled_dot_product_attention, functional.softmax

        def seen(*args: Any, **kwargs: Any) -> Any:
            self._products(*args, **kwargs)
            return products(*args, **kwargs)

        def weighed(*args: Any, **kwargs: Any) -> Any:
            result = softmax(*args, **kwargs)
            self._scores(args[0] if args else kwargs["input"], result)
            return result

        functional.scaled_dot_product_attention, functional.softmax = seen, weighed
        try:
            yield
        finally:
            functional.scaled_dot_product_attention, functional.softmax = products, softmax

    def _products(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        with torch.autocast(query.device.type, enabled=False):
            q, k = (split_heads(widened(t), self.heads) for t in (query, key))
            if k.shape[1] != q.shape[1]:  # grouped heads
                k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
            factor = q.shape[-1] ** -0.5 if scale is None else scale
            bias = None if attn_mask is None else added_mask(attn_mask, q, self.heads)
            self.note(Products("", q, k, bias, factor, is_causal, self.own))

    def _scores(self, scores: torch.Tensor, weights: torch.Tensor) -> None:
        with torch.autocast(scores.device.type, enabled=False):
            scores, weights = (split_heads(widened(t), self.heads) for t in (scores, weights))
            self.note(Scores("", scores, weights, self.own))


def split_heads(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Shape (samples, heads, ...), also where samples and heads were joined."""
    if tensor.ndim > 3:
        return tensor
    heads = heads if len(tensor) % heads == 0 else 1
    return tensor.reshape(-1, heads, *tensor.shape[1:])


def added_mask(mask: torch.Tensor, q: torch.Tensor, heads: int) -> torch.Tensor:
    """The term that a mask of scaled_dot_product_attention adds to the scores, 4-dimensional."""
    if mask.dtype == torch.bool:
        mask = visible_mask(mask, q)
    mask = mask.to(q.dtype)
    if mask.ndim == 3:
        return split_heads(mask, heads) if len(mask) > 1 else mask[None]
    return mask if mask.ndim > 3 else mask.reshape(1, 1, *mask.shape)


def draw_seed(seed: int, passes: int, path: str) -> int:
    """Seed for one attention in one pass; a checkpoint that recomputes the pass gets the same."""
    return zlib.crc32(f"{seed} {passes} {path}".encode())


def first_computation() -> bool:
    """Whether this is the pass itself, not its recomputation by a checkpoint.

    A recomputation in the backward pass must give the same tensors, but count only once.
    """
    return torch._C._current_graph_task_id() == -1


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float32, or in float64 if it is."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
