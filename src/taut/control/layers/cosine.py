"""Scaled cosine similarity attention as a layer."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from taut._base.bound import Bound
from taut._base.checks import positive_in_range
from taut.attention import multihead_cosine
from taut.control.layers.multihead import Attended, MultiheadLayer, weighed
from taut.models import without_blind_rows


class CosineAttention(MultiheadLayer):
    """Multi-head attention in which queries, keys and values have length below 1.

    In each head the rows of q, k and v are divided by √(‖u‖² + epsilon); the weights are
    softmax(scale⟨qᵢ, kⱼ⟩), the output is nu times the averages of v, joined over the heads and
    projected. Its derivative is bounded on all inputs (theorem scsa-cov).

    Parameters
    ----------
    embed_dim, num_heads, dropout, bias, batch_first, device, dtype
        As in ``torch.nn.MultiheadAttention``, which has the same parameters under the same names:
        its state dict fits.
    nu, scale
        Factor of the output and of the scores, the root of a head's width if not given: both are of
        the size that they have in dot-product attention.
    epsilon
        What is added to the squared lengths. The constant grows as epsilon^(−1/2).

    Notes
    -----
    Biases of queries, keys and values are allowed, for they leave the bound as it is: the proof
    asks only that u/√(‖u‖² + epsilon) lies in the unit ball and moves epsilon^(−1/2) times as far
    as u. nu, scale and epsilon are not in the state dict.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = CosineAttention(8, 2, batch_first=True, dtype=torch.float64)
    >>> x = torch.randn(3, 5, 8, dtype=torch.float64)
    >>> output, weights = layer(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    >>> layer.lipschitz(5)
    Bound(at most ..., l2, all inputs, up to 5 tokens, any mask; scsa-cov, spectral, chain)
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
        *,
        nu: float | None = None,
        scale: float | None = None,
        epsilon: float = 1.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, batch_first, device, dtype)
        made = cosine_options(self.head_dim, nu=nu, scale=scale, epsilon=epsilon)
        self.nu, self.scale, self.epsilon = made["nu"], made["scale"], made["epsilon"]

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        return tuple(unit(u, self.epsilon) for u in super()._project(query, key, value))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, term: Tensor | None, need_weights: bool
    ) -> Attended:
        if need_weights:
            scores = self.scale * (q @ k.transpose(-1, -2))
            averages, weights = weighed(
                scores, v, term, dropout=self.dropout, training=self.training
            )
            return self.nu * averages, weights
        blind = None
        if term is not None:
            term, blind = without_blind_rows(term)
        averages = nn.functional.scaled_dot_product_attention(
            q, k, v, term, self.dropout if self.training else 0.0, scale=self.scale
        )
        if blind is not None:
            averages = averages.masked_fill(blind, 0.0)
        return self.nu * averages, None

    def lipschitz(
        self,
        n: int,
        *,
        context: int | None = None,
        mask: Literal["any", "causal", "none"] = "any",
    ) -> Bound:
        """How far the output can move, in l2 over all tokens, for each unit that the input moves.

        Parameters
        ----------
        n
            Largest number of tokens.
        context
            In cross-attention, the largest number of keys; the input is then the queries, keys and
            values together.
        mask
            ``"any"`` holds under every mask and additive term. Where none is passed, or the causal
            one, ``"none"`` and ``"causal"`` are smaller, and grow less with n.

        Notes
        -----
        Weights are read now, their norms by SVD, in exact arithmetic apart from outward rounding:
        the rounding of the layer itself, in its own precision, is not a part of it.
        """
        wq, wk, wv = self.in_proj_weight.chunk(3)
        bound = multihead_cosine(
            wq,
            wk,
            wv,
            self.out_proj.weight,
            heads=self.num_heads,
            n=n,
            context=context,
            mask=mask,
            nu=self.nu,
            scale=self.scale,
            epsilon=self.epsilon,
        )
        return bound._replace(domain=self._domain(bound.domain))

    def extra_repr(self) -> str:
        """What the layer was made with."""
        own = f"nu={self.nu:g}, scale={self.scale:g}, epsilon={self.epsilon:g}"
        return f"{super().extra_repr()}, {own}"


def cosine_options(
    head_dim: int, *, nu: float | None = None, scale: float | None = None, epsilon: float = 1.0
) -> dict[str, float]:
    """The numbers of cosine attention, checked."""
    usual = math.sqrt(head_dim)
    return {
        "nu": positive_in_range(usual if nu is None else nu, name="nu"),
        "scale": positive_in_range(usual if scale is None else scale, name="scale"),
        "epsilon": positive_in_range(epsilon, name="epsilon"),
    }


def unit(u: Tensor, epsilon: float) -> Tensor:
    """u/√(‖u‖² + epsilon) along the last axis, squares in single precision at least."""
    wide = u if u.dtype == torch.float64 else u.float()
    return (wide * torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + epsilon)).to(u.dtype)
