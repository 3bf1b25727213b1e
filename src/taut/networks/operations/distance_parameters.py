"""DistanceHeads: the weights of L2 attention, and the norms of them that bounds need."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from taut._base.rounding import Numbers, down, number, over, times
from taut.attention import l2
from taut.networks.operations.linear import Affine
from taut.networks.weight_cache import cached
from taut.networks.weight_norms import frobenius, length, spectral, spectral_product


class DistanceHeads(NamedTuple):
    """L2 attention: scores −‖uᵢ − uⱼ‖²/√w, u = Wq x + bq, values Wv Wqᵀu/√w + bv in each head."""

    query: Affine
    value: Affine
    output: Affine
    heads: int

    @property
    def width(self) -> int:
        """Width of a query."""
        return self.query[0].shape[0] // self.heads

    def value_maps(self) -> torch.Tensor:
        """What rows of u are multiplied by, (heads, width, width), in float64."""
        q, v = (
            map_[0].detach().double().reshape(self.heads, -1, map_[0].shape[-1])
            for map_ in (self.query, self.value)
        )
        return q @ v.mT / math.sqrt(self.width)

    def around(self, norm: str) -> float:
        """What stands before and after the averages: the constant of a single token."""
        return self.everywhere(1, norm)

    def everywhere(self, tokens: int, norm: str) -> float:
        """The constant on all inputs of so many tokens (theorem l2-attention)."""

        def compute(query: torch.Tensor, value: torch.Tensor, output: torch.Tensor) -> float:
            found = l2(query, value, output, n=tokens, heads=self.heads, norm=norm)  # type: ignore[arg-type]
            return float(found.upper)

        weights = (self.query[0], self.value[0], self.output[0])
        return cached(f"l2 attention {self.heads} {tokens} {norm}", weights, compute)


class DistanceNorms(NamedTuple):
    """Norms of the weights, one number for each head where there are several."""

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
    (wq, bq), (wv, bv), (wo, bo) = heads.query, heads.value, heads.output
    narrow = over(1.0, down(math.sqrt(heads.width)))
    queries, values = wq.chunk(many), wv.chunk(many)
    pairs = list(zip(queries, values, strict=True))
    none = [0.0] * many
    return DistanceNorms(
        queries=number([spectral(q) for q in queries]),
        query_biases=number(none if bq is None else [length(b) for b in bq.chunk(many)]),
        query_size=max(frobenius(q) for q in queries),
        maps=number([times(narrow, spectral_product(v, q.mT)) for q, v in pairs]),
        map_sizes=number([times(narrow, frobenius(v), frobenius(q)) for q, v in pairs]),
        value_biases=number(none if bv is None else [length(b) for b in bv.chunk(many)]),
        output=spectral(wo),
        output_size=frobenius(wo),
        output_bias=length(bo),
    )
