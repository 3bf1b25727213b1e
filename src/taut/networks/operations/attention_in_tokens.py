"""Attention on a ball in the largest token, with its output projection (attn-heads-token).

Proof in docs/proofs_attention.md. Without rotations, caps and norms of heads the derivative of a
head is one matrix applied to the change of each key's token, V + α(vⱼ − v̄)(Kᵀq)ᵀ, whose two parts
are uncorrelated under the weights: their squares add up, not they themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from taut._base.rounding import Numbers, hypotenuse, number, plus, root, times
from taut.networks.operations.attention_parameters import AttentionInputs
from taut.networks.weight_norms import length, spectral_product


class TokenConstants(NamedTuple):
    """Constants of attention and its output projection, one for each sample."""

    query: Numbers
    context: Numbers
    longest: Numbers


def attention_in_tokens(given: AttentionInputs) -> TokenConstants | None:
    """Constants in the largest token, from the lengths of tokens; None if the theorem is silent."""
    x, y, heads, known, _, _, rotary = given
    plain = rotary is None and heads.softcap is None and heads.key_norm is None
    normed = heads.query_norm is not None or heads.value_norm is not None
    if not plain or normed or heads.output is None:
        return None
    if not (np.isfinite(x.length).all() and np.isfinite(y.length).all()):
        return None
    values = [part for part in heads.value[0].chunk(heads.kv_heads) for _ in range(heads.group)]
    keys, sizes = (np.repeat(part, heads.group) for part in (known.keys, known.values))
    one = _Output(heads.output[0], values, known.output, sizes)
    found = []
    for near, far in zip(x.length, y.length, strict=True):
        queries = plus(times(known.queries, near), known.query_biases)
        reach = times(heads.scale, queries, keys, far)  # c of each head
        lever = times(heads.scale, keys, far, far)
        grown = number([hypotenuse(1.0, float(c)) for c in reach])
        found.append(
            (
                times(one.aligned(lever), known.query),
                one.free(grown),
                plus(
                    times(one.free(np.ones(heads.heads)), far),
                    times(known.output, known.value_bias),
                ),
            )
        )
    query, context, size = (number(column) for column in zip(*found, strict=True))
    return TokenConstants(query, context, plus(size, length(heads.output[1])))


class _Output(NamedTuple):
    """Output projections and values of all heads."""

    weight: torch.Tensor
    values: list[torch.Tensor]
    norm: float
    sizes: Numbers  # norms of the values

    def _joined(self, factors: Numbers) -> float:
        """‖[f₁O₁V₁, …, f_H O_H V_H]‖, a product of the projection and a block diagonal matrix."""
        blocks = [float(f) * v.detach().double() for f, v in zip(factors, self.values, strict=True)]
        side = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
        found = spectral_product(self.weight.detach().double(), side)
        return float(times(found, 1 + 4e-16))  # the factors were multiplied in

    def aligned(self, factors: Numbers) -> float:
        """Where the squares of what enters the heads add up to at most 1."""
        apart = times(self.norm, float(times(factors, self.sizes).max()))
        return float(min(apart, self._joined(factors)))

    def free(self, factors: Numbers) -> float:
        """Where what enters each head is at most 1: heads may look at different tokens."""
        apart = times(self.norm, hypotenuse(*times(factors, self.sizes)))
        return float(min(apart, times(root(len(factors)), self._joined(factors))))
