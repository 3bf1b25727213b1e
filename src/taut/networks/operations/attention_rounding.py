"""What rounding does to the output of attention."""

from __future__ import annotations

import numpy as np
import torch

from taut._base.rounding import Numbers, plus, root, times, up
from taut.networks.operations.attention_parameters import (
    AttentionConstants,
    AttentionInputs,
    HeadNorm,
)
from taut.networks.operations.attention_projections import stretch
from taut.networks.operations.setting import Setting
from taut.networks.rounding_error import RoundingError
from taut.networks.weight_norms import largest, length


def attention_rounding(
    run: Setting, given: AttentionInputs, part: AttentionConstants
) -> RoundingError:
    """Error of the output at exact tokens.

    Notes
    -----
    An error of at most e in every score moves the logarithm of a weight by 2e, and summing up m
    exponentials by γ_{m+8} more: with θ for both, a head's weights change by factors between
    e^{−θ} and e^θ, and its mean value by at most (e^θ − 1)·longest, never by more than twice that
    length. Values err like a linear map of all heads at once, and each is read by ``group`` heads;
    a norm of the values multiplies that by its gain and errs itself by γ_{w+8} of them, and a
    factor of theirs that is applied to the averages instead by one unit more.
    Centring the values and averaging them errs by γ_{4m+16} of the longest. The last map is linear.
    """
    y, heads, norms = given.y, given.heads, given.norms
    doubt = plus(times(2.0, _score_units(given, part)), y.tokens + 8)

    def weights(eps: float) -> Numbers:
        changed = np.minimum(up(up(np.expm1(np.minimum(times(eps, doubt), 700.0)))), 2.0)
        return times(norms.output, changed, part.longest)

    values = times(part.value_gain, plus(times(norms.value_size, y.length), norms.value_bias))
    own = 0 if heads.value_norm is None else heads.value_width + 12
    last = times(norms.output_size, part.longest)
    inner = heads.heads * heads.width
    if heads.output is not None:
        last, inner = plus(last, length(heads.output[1])), heads.output[0].shape[1]
    return (
        run.rounding_by(given.x, weights)
        + run.rounding(given.x, times(norms.output, root(heads.group), values), y.width + 1)
        + run.rounding(given.x, times(norms.output, part.longest), 2 * y.tokens + 16 + own)
        + run.rounding(given.x, last, inner + 1)
    )


def _score_units(given: AttentionInputs, part: AttentionConstants) -> Numbers:
    """How far a score can be off, in units of EPS.

    Queries and keys err by γ_{d+1} of ‖W‖_F|x| + |b|, which norm and rotation multiply by their
    gain, and by γ_{w+8} of themselves. Keys are centred, so that a dot product errs by γ_w of
    2|q||k|, and subtractions, scale, cap and the maximum by a few units of that; adding a bias and
    subtracting the maximum errs by three units of the bias.
    """
    x, y, heads, norms = given.x, given.y, given.heads, given.norms
    w = heads.width
    turn = 1.0 if given.rotary is None else stretch(given.rotary)
    plain_q = plus(times(norms.query_size, x.length), norms.query_biases.max())
    plain_k = plus(times(norms.key_size, y.length), norms.key_biases.max())
    q = times(turn, _after(heads.query_norm, plain_q, w))
    k = times(turn, _after(heads.key_norm, plain_k, w))
    error_q = plus(times(part.query_gain, x.width + 1, plain_q), times(w + 8, q))
    error_k = plus(times(part.key_gain, y.width + 1, plain_k), times(w + 8, k))
    products = plus(times(error_q, k), times(q, error_k), times(2 * w + 16, q, k))
    return plus(times(heads.scale, products), times(4.0, _largest_term(given.bias)))


def _after(norm: HeadNorm | None, size: Numbers, width: int) -> Numbers:
    """Length of queries or keys after their norm: at most √width times its gain."""
    return size if norm is None else np.full_like(size, times(largest(norm.gain), root(width)))


def _largest_term(bias: torch.Tensor | None) -> float:
    if bias is None:
        return 0.0
    values = bias.detach().double()
    return float(torch.where(values.isfinite(), values.abs(), 0.0).max())
