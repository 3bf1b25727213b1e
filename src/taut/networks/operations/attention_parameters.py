"""Heads: the weights of an attention module, and the norms of them that bounds need."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from taut._base.rounding import Numbers, down, number, over
from taut.networks.operations.linear import Affine
from taut.networks.region import Region
from taut.networks.weight_norms import frobenius, length, spectral

Rotary = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, (tokens, turned width)


class HeadNorm(NamedTuple):
    """RMSNorm of the queries, keys or values of every head (QK-norm)."""

    gain: torch.Tensor | None
    epsilon: float


def unit_norm(width: int, epsilon: float, factor: float = 1.0) -> HeadNorm:
    """factor·u/√(‖u‖² + epsilon) of every head, as an RMSNorm with a constant gain.

    The gain, factor/√width, is rounded up and epsilon/width down, so that neither the constant nor
    the length of the output is below that of the map itself; its values are off by less than four
    units, for which the rounding of norms has room.
    """
    gain = over(factor, down(math.sqrt(width)))
    return HeadNorm(torch.full((width,), gain, dtype=torch.float64), down(epsilon / width))


class Heads(NamedTuple):
    """Dot-product attention: scores cap(scale·⟨q, k⟩), weights as (outputs, inputs).

    The heads stand one after another in the outputs of ``query``, ``key`` and ``value`` and in the
    inputs of ``output``.
    """

    query: Affine
    key: Affine
    value: Affine
    output: Affine | None
    heads: int
    kv_heads: int
    scale: float
    softcap: float | None = None
    query_norm: HeadNorm | None = None
    key_norm: HeadNorm | None = None
    value_norm: HeadNorm | None = None

    @property
    def width(self) -> int:
        """Width of a query."""
        return self.query[0].shape[0] // self.heads

    @property
    def value_width(self) -> int:
        """Width of a value."""
        return self.value[0].shape[0] // self.kv_heads

    @property
    def outputs(self) -> int:
        """Width of the output."""
        if self.output is not None:
            return self.output[0].shape[0]
        return self.value[0].shape[0] * self.group

    @property
    def group(self) -> int:
        """How many heads share one key and value."""
        return self.heads // self.kv_heads


class AttentionInputs(NamedTuple):
    """All that attention reads: tokens for queries, tokens for keys and values, and the rest."""

    x: Region
    y: Region
    heads: Heads
    norms: ProjectionNorms
    mask: torch.Tensor | None  # (batch, 1 or heads, queries, keys), every query with its own row
    bias: torch.Tensor | None
    rotary: Rotary | None


class ProjectionNorms(NamedTuple):
    """Norms of the weights: of all heads together, and of each."""

    output: float
    query: float
    key: float
    value: float
    ratio: float  # ‖value‖/‖key‖
    both: float  # of [ratio·key; value]
    queries: Numbers
    keys: Numbers
    values: Numbers
    query_biases: Numbers
    key_biases: Numbers
    value_biases: Numbers
    output_size: float  # Frobenius, of all heads
    value_size: float
    value_bias: float  # of all heads
    query_size: float  # Frobenius, of the largest head
    key_size: float


class AttentionConstants(NamedTuple):
    """Constants of attention before its output projection, one for each sample."""

    query: Numbers  # in the tokens that make queries
    context: Numbers  # in those that make keys and values
    longest: Numbers  # longest token of the output
    query_gain: Numbers  # constant of what follows the projection of queries: norm and rotation
    key_gain: Numbers
    value_gain: Numbers


def norms_of_heads(heads: Heads) -> ProjectionNorms:
    """All of them, from the cache where the weights have not changed."""
    for name in ("scale", "softcap"):
        value = getattr(heads, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be a finite number > 0, got {value}")
    if heads.heads % heads.kv_heads:
        raise ValueError(
            f"heads must be a multiple of kv_heads, got {heads.heads} and {heads.kv_heads}"
        )
    wq, wk, wv = heads.query[0], heads.key[0], heads.value[0]
    key, value = spectral(wk), spectral(wv)
    ratio = value / key if key > 0 and 0 < value / key < 1e100 else 1.0
    return ProjectionNorms(
        output=1.0 if heads.output is None else spectral(heads.output[0]),
        query=spectral(wq),
        key=key,
        value=value,
        ratio=ratio,
        both=spectral(wk, wv, scales=(ratio, 1.0)),
        queries=_each(wq, heads.heads),
        keys=_each(wk, heads.kv_heads),
        values=_each(wv, heads.kv_heads),
        query_biases=_biases(heads.query[1], heads.heads),
        key_biases=_biases(heads.key[1], heads.kv_heads),
        value_biases=_biases(heads.value[1], heads.kv_heads),
        output_size=1.0 if heads.output is None else frobenius(heads.output[0]),
        value_size=frobenius(wv),
        value_bias=length(heads.value[1]),
        query_size=max(frobenius(block) for block in wq.chunk(heads.heads)),
        key_size=max(frobenius(block) for block in wk.chunk(heads.kv_heads)),
    )


def _each(weight: torch.Tensor, heads: int) -> Numbers:
    return number([spectral(block) for block in weight.chunk(heads)])


def _biases(bias: torch.Tensor | None, heads: int) -> Numbers:
    if bias is None:
        return np.zeros(heads)
    return number([length(block) for block in bias.chunk(heads)])
