"""DistanceHeads: the weights of L2 attention, and the norms of them that bounds need."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from taut._base.rounding import Numbers, down, hypotenuse, number, over, times, up
from taut.attention import l2
from taut.networks.operations.linear import Affine
from taut.networks.weight_cache import cached
from taut.networks.weight_norms import frobenius, length, spectral, spectral_product


class DistanceHeads(NamedTuple):
    """L2 attention: scores −scale·‖uᵢ − uⱼ‖² with u = Wq x + bq, and averages of values.

    Attributes
    ----------
    query, output
        Weights and biases.
    value
        Wv and bv, which make the values Wv Wqᵀu/√w + bv of each head, as Kim et al. (2021) have
        them; None for values u.
    heads
        Number of heads.
    scale
        Factor of the scores, 1/√w if None.
    """

    query: Affine
    value: Affine | None
    output: Affine
    heads: int
    scale: float | None = None

    @property
    def width(self) -> int:
        """Width of a query."""
        return self.query[0].shape[0] // self.heads

    @property
    def score_scale(self) -> float:
        """Factor of the scores, from above."""
        return up(1 / math.sqrt(self.width)) if self.scale is None else self.scale

    def values(self, u: torch.Tensor) -> torch.Tensor:
        """Values of all heads from u, (..., heads, tokens, width), in float64."""
        if self.value is None:
            return u
        found = u @ self._value_maps().to(u.device)
        shift = self.value[1]
        return found if shift is None else found + shift.detach().to(u).view(self.heads, 1, -1)

    def _value_maps(self) -> torch.Tensor:
        """What rows of u are multiplied by, (heads, width, width)."""
        assert self.value is not None
        q, v = (
            map_[0].detach().double().reshape(self.heads, -1, map_[0].shape[-1])
            for map_ in (self.query, self.value)
        )
        return q @ v.mT / math.sqrt(self.width)

    def around(self, norm: str) -> float:
        """What stands before and after the averages: the constant of a single token."""
        if self.value is not None:
            return self.everywhere(1, norm)
        each = [spectral(q) for q in self.query[0].chunk(self.heads)]
        before = hypotenuse(*each) if norm == "token" else spectral(self.query[0])
        return times(spectral(self.output[0]), before)

    def everywhere(self, tokens: int, norm: str) -> float:
        """The constant on all inputs of so many tokens (theorem l2-attention)."""
        if self.value is None:
            return math.inf

        def compute(query: torch.Tensor, value: torch.Tensor, output: torch.Tensor) -> float:
            found = l2(query, value, output, n=tokens, heads=self.heads, norm=norm)  # type: ignore[arg-type]
            return float(found.upper)

        weights = (self.query[0], self.value[0], self.output[0])
        return cached(f"l2 attention {self.heads} {tokens} {norm}", weights, compute)


class DistanceNorms(NamedTuple):
    """Norms of the weights, one number for each head where there are several."""

    query: float
    queries: Numbers
    query_biases: Numbers
    query_size: float  # Frobenius, of the largest head
    maps: Numbers  # of what makes values from queries
    map_sizes: Numbers  # Frobenius norms of its two factors, multiplied
    value_biases: Numbers
    output: float
    output_size: float
    output_bias: float


def norms_of_distances(heads: DistanceHeads) -> DistanceNorms:
    """All of them."""
    many = heads.heads
    (wq, bq), (wo, bo) = heads.query, heads.output
    queries = wq.chunk(many)
    none = [0.0] * many
    maps, sizes, bv = [1.0] * many, none, None  # nothing is multiplied or rounded
    if heads.value is not None:
        wv, bv = heads.value
        narrow = over(1.0, down(math.sqrt(heads.width)))
        pairs = list(zip(queries, wv.chunk(many), strict=True))
        maps = [times(narrow, spectral_product(v, q.mT)) for q, v in pairs]
        sizes = [times(narrow, frobenius(v), frobenius(q)) for q, v in pairs]
    return DistanceNorms(
        query=spectral(wq),
        queries=number([spectral(q) for q in queries]),
        query_biases=number(none if bq is None else [length(b) for b in bq.chunk(many)]),
        query_size=max(frobenius(q) for q in queries),
        maps=number(maps),
        map_sizes=number(sizes),
        value_biases=number(none if bv is None else [length(b) for b in bv.chunk(many)]),
        output=spectral(wo),
        output_size=frobenius(wo),
        output_bias=length(bo),
    )
