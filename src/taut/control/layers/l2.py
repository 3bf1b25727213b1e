"""L2 self-attention as a layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from taut._base.bound import Bound
from taut._base.domain import Everywhere
from taut.attention import l2
from taut.control.layers.multihead import Attended, MultiheadLayer, weighed
from taut.models import seeing_itself


class L2Attention(MultiheadLayer):
    """Multi-head self-attention that compares tokens by their distance (Kim et al. 2021).

    In each head uᵢ = Wq xᵢ, the weights are softmax(−‖uᵢ − uⱼ‖²/√w), w being the width of a head,
    and the output is Wv Wqᵀ/√w times the averages of u, joined over the heads and projected. Keys
    are queries, and values go through Wq as well: so the derivative is bounded on all inputs
    (theorem l2-attention).

    Parameters
    ----------
    embed_dim, num_heads, dropout, batch_first, device, dtype
        As in ``torch.nn.MultiheadAttention``. ``in_proj_weight`` holds Wq over Wv.
    bias
        Give the output a bias. Others would have no effect: that of queries and keys cancels in
        their distance, and that of values shifts all outputs alike.

    Notes
    -----
    Every token sees itself, whatever the masks say, and none better than itself: additive terms
    are taken relative to that of the token itself, and cut at 0. Without this the map would have no
    Lipschitz constant. Cross-attention has none: query, key and value must be one tensor.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = L2Attention(8, 2, batch_first=True, dtype=torch.float64)
    >>> x = torch.randn(3, 5, 8, dtype=torch.float64)
    >>> layer(x, x, x, need_weights=False)[0].shape
    torch.Size([3, 5, 8])
    >>> layer.lipschitz(5)
    Bound(at most ..., l2, all inputs, up to 5 tokens, any mask; l2-attention)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, batch_first, device, dtype, parts=2)

    def reset_parameters(self) -> None:
        """Draw the weights; those of the inputs as torch's attention does."""
        for weight in self.in_proj_weight.detach().chunk(2):
            nn.init.xavier_uniform_(weight)
        self.out_proj.reset_parameters()
        if self.out_proj.bias is not None:
            nn.init.zeros_(self.out_proj.bias)

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        super()._check(query, key, value)
        if query is not key or key is not value:
            raise ValueError(
                "L2 attention has a Lipschitz constant as self-attention only: pass one tensor as "
                "query, key and value, or take CosineAttention"
            )

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        wq, wv = self.in_proj_weight.chunk(2)
        u = self._heads(nn.functional.linear(query, wq))
        return u, u, u @ value_map(wq, wv, self.num_heads).to(u.dtype)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, term: Tensor | None, need_weights: bool
    ) -> Attended:
        averages, weights = nearby(q, v, term, dropout=self.dropout, training=self.training)
        return averages, weights if need_weights else None

    def lipschitz(self, n: int) -> Bound:
        """How far the output can move, in l2 over all tokens, for each unit that the input moves.

        It holds for up to n tokens, with weights as they are now, in exact arithmetic apart from
        outward rounding: the rounding of the layer itself, in its own precision, is not a part of
        it.
        """
        wq, wv = self.in_proj_weight.chunk(2)
        return l2_bound(wq, wv, self.out_proj.weight, self.num_heads, n, self._domain)


def l2_bound(wq: Tensor, wv: Tensor, wo: Tensor, heads: int, n: int, domain: Any) -> Bound:
    """Theorem l2-attention, for masks that :func:`taut.models.masks.seeing_itself` has seen.

    With terms bᵢⱼ ≤ bᵢᵢ weights are e^{−a} times numbers up to 1, a quotient that is largest where
    those are 0 or 1: under a mask.
    """
    bound = l2(wq, wv, wo, n=n, heads=heads)
    return bound._replace(domain=domain(Everywhere().given(f"up to {n} tokens", "any mask")))


def value_map(wq: Tensor, wv: Tensor, heads: int) -> Tensor:
    """Wq Wvᵀ/√w for each head: what rows of u are multiplied by to become values."""
    q, v = (w.reshape(heads, -1, w.shape[-1]) for w in (wq, wv))
    return q @ v.transpose(-1, -2) / math.sqrt(q.shape[1])


def nearby(
    u: Tensor, v: Tensor, term: Tensor | None, *, dropout: float, training: bool
) -> tuple[Tensor, Tensor]:
    """Averages of v under softmax(−‖uᵢ − uⱼ‖²/√w + term), and the weights."""
    # Squares of lengths cancel: half precision would not be enough, so autocast is off.
    with torch.autocast(u.device.type, enabled=False):
        wide = u if u.dtype == torch.float64 else u.float()
        squares = wide.square().sum(dim=-1, keepdim=True)
        distances = squares + squares.transpose(-1, -2) - 2 * (wide @ wide.transpose(-1, -2))
        if term is not None:
            term = seeing_itself(term.to(wide.dtype))
        scores = -distances / math.sqrt(u.shape[-1])
        return weighed(scores, v, term, dropout=dropout, training=training)
