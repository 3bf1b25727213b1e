"""MultiheadLayer: what the layers share with ``torch.nn.MultiheadAttention``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from taut._base.checks import whole_number
from taut._base.domain import Domain
from taut.models import merged_mask, without_blind_rows

Attended = tuple[Tensor, Tensor | None]


class MultiheadLayer(nn.Module, ABC):
    """Attention with heads, an output projection, and the interface of torch's.

    A subclass attends (:meth:`_attend`), on tensors (batch, heads, tokens, width of a head).
    """

    # nn.TransformerEncoderLayer computes dot-product attention by itself, from the weights it
    # finds here, wherever this is True.
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float,
        bias: bool,
        batch_first: bool,
        device: Any,
        dtype: torch.dtype | None,
        parts: int = 3,
    ) -> None:
        super().__init__()
        self.embed_dim = whole_number(embed_dim, name="embed_dim", least=1)
        self.num_heads = whole_number(num_heads, name="num_heads", least=1)
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")
        self.head_dim = self.embed_dim // self.num_heads
        self.dropout, self.batch_first = float(dropout), bool(batch_first)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        options = {"device": device, "dtype": dtype}
        rows = parts * embed_dim
        self.in_proj_weight = nn.Parameter(torch.empty(rows, embed_dim, **options))
        biased = bias and parts == 3
        self.in_proj_bias = nn.Parameter(torch.empty(rows, **options)) if biased else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as torch's attention does."""
        nn.init.xavier_uniform_(self.in_proj_weight)
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, by heads."""
        weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(
            self._heads(nn.functional.linear(x, w, b))
            for x, w, b in zip((query, key, value), weights, biases, strict=True)
        )

    @abstractmethod
    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, term: Tensor | None, need_weights: bool
    ) -> Attended:
        """Averages of the values, by heads, and the weights if needed; ``term`` is a mask."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Attended:
        """Output and weights, as ``torch.nn.MultiheadAttention`` gives them.

        ``is_causal`` without ``attn_mask`` masks by itself. Queries that see no key have weights 0.
        """
        if query.is_nested:
            return self._nested(query, key, value, key_padding_mask, need_weights, attn_mask)
        batched = query.dim() == 3
        self._check(query, key, value)
        padding = key_padding_mask
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            padding = None if padding is None else padding.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._project(query, key, value)
        shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        term = merged_mask(attn_mask, padding, causal=is_causal, shape=shape, like=q)
        joined, weights = self._attend(q, k, v, term, need_weights)
        output = self.out_proj(joined.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.dim() not in (2, 3) or x.dim() != query.dim() or x.shape[-1] != self.embed_dim:
                raise ValueError(
                    f"{name} must be 2-D or 3-D as query is, of width {self.embed_dim}; "
                    f"its shape is {tuple(x.shape)}"
                )
        if key.shape != value.shape:
            raise ValueError(
                f"key and value must be of one shape, got {tuple(key.shape)} and "
                f"{tuple(value.shape)}"
            )

    def _nested(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding: Tensor | None,
        need_weights: bool,
        mask: Tensor | None,
    ) -> Attended:
        """nn.TransformerEncoder packs padded input into nested tensors in evaluation mode."""
        if not (query is key and key is value and padding is None and mask is None):
            raise ValueError("nested tensors are taken as self-attention without masks only")
        if need_weights or not self.batch_first:
            raise ValueError("nested tensors need batch_first=True and need_weights=False")
        lengths = [len(row) for row in query.unbind()]
        x = torch.nested.to_padded_tensor(query, 0.0)
        real = torch.tensor(lengths, device=x.device)
        hidden = torch.arange(x.shape[1], device=x.device) >= real[:, None]
        output, _ = self.forward(x, x, x, key_padding_mask=hidden, need_weights=False)
        rows = [row[:length] for row, length in zip(output, lengths, strict=True)]
        return torch.nested.as_nested_tensor(rows, layout=query.layout), None

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) as (batch, heads, tokens, width of a head)."""
        return x.reshape(*x.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def _domain(self, domain: Domain) -> Domain:
        """Dropout makes weights larger than a softmax can, so no bound holds while it is on."""
        return domain.given("dropout off") if self.dropout else domain

    def extra_repr(self) -> str:
        """What the layer was made with."""
        return (
            f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout:g}, "
            f"batch_first={self.batch_first}"
        )


def weighed(
    scores: Tensor, v: Tensor, term: Tensor | None, *, dropout: float, training: bool
) -> tuple[Tensor, Tensor]:
    """Averages of the values under the softmax of the scores, and its weights."""
    blind = None
    if term is not None:
        term, blind = without_blind_rows(term)
        scores = scores + term
    weights = torch.softmax(scores, dim=-1)
    if blind is not None:
        weights = weights.masked_fill(blind, 0.0)
    weights = nn.functional.dropout(weights, dropout, training).to(v.dtype)
    return weights @ v, weights
