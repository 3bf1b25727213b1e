"""Scaled cosine similarity attention as a layer."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from taut._bound import Bound
from taut.attention._inputs import positive
from taut.control._cosine_bound import cosine_bound
from taut.control._masks import sighted
from taut.control._multihead import Attended, MultiheadLayer, weighed


class CosineAttention(MultiheadLayer):
    """Multi-head attention in which queries, keys and values have length below 1.

    In each head the rows of q, k and v are divided by √(‖u‖² + eps); the weights are
    softmax(tau⟨qᵢ, kⱼ⟩), the output is nu times the averages of v, joined over the heads and
    projected. Its derivative is bounded on all inputs (theorem scsa-cov).

    Parameters
    ----------
    embed_dim, num_heads, dropout, bias, batch_first, device, dtype
        As in ``torch.nn.MultiheadAttention``, which has the same parameters under the same names:
        its state dict fits.
    nu, tau
        Factor of the output and of the scores, √(width of a head) if not given: then both are of
        the size that they have in dot-product attention.
    eps
        What is added to the squared lengths. The constant grows as eps^(−1/2).

    Notes
    -----
    Biases of queries, keys and values are allowed, for they leave the bound as it is: the proof
    asks only that u/√(‖u‖² + eps) lies in the unit ball and moves eps^(−1/2) times as far as u.
    nu, tau and eps are not in the state dict.

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
        tau: float | None = None,
        eps: float = 1.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, batch_first, device, dtype)
        made = cosine_options(self.head_dim, nu=nu, tau=tau, eps=eps)
        self.nu, self.tau, self.eps = made["nu"], made["tau"], made["eps"]

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        return tuple(unit(u, self.eps) for u in super()._project(query, key, value))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, term: Tensor | None, need_weights: bool
    ) -> Attended:
        if need_weights:
            scores = self.tau * (q @ k.transpose(-1, -2))
            averages, weights = weighed(
                scores, v, term, dropout=self.dropout, training=self.training
            )
            return self.nu * averages, weights
        blind = None
        if term is not None:
            term, blind = sighted(term)
        averages = nn.functional.scaled_dot_product_attention(
            q, k, v, term, self.dropout if self.training else 0.0, scale=self.tau
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
        bound = cosine_bound(
            self.in_proj_weight.chunk(3),
            self.out_proj.weight,
            self.num_heads,
            n=n,
            context=context,
            mask=mask,
            nu=self.nu,
            tau=self.tau,
            eps=self.eps,
        )
        return bound._replace(domain=self._domain(bound.domain))

    def extra_repr(self) -> str:
        """What the layer was made with."""
        return f"{super().extra_repr()}, nu={self.nu:g}, tau={self.tau:g}, eps={self.eps:g}"


def cosine_options(
    head_dim: int, *, nu: float | None = None, tau: float | None = None, eps: float = 1.0
) -> dict[str, float]:
    """The numbers of cosine attention, checked."""
    usual = math.sqrt(head_dim)
    return {
        "nu": positive(usual if nu is None else nu, name="nu"),
        "tau": positive(usual if tau is None else tau, name="tau"),
        "eps": positive(eps, name="eps"),
    }


def unit(u: Tensor, eps: float) -> Tensor:
    """u/√(‖u‖² + eps) along the last axis, squares in single precision at least."""
    wide = u if u.dtype == torch.float64 else u.float()
    return (wide * torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + eps)).to(u.dtype)
