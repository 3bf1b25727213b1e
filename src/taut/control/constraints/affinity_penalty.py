"""‖AᵀA − I‖²_F of attention weights, and its derivative, without keeping the weights of any head.

A = softmax(factor·QKᵀ + bias) is formed for some heads at a time. Value and derivatives come out of
the same pass, and the tensors that are kept for the backward pass have the size of queries and
keys. Keys that no query sees and queries that are padding tokens do not count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from taut.control.constraints.gram_penalty import gram_matrix
from taut.models import HIDDEN, Products, Scores

AT_ONCE = 1 << 19  # weights that are formed at a time
SHORT = 128**2  # queries times keys up to which derivatives wait for the backward pass


class AffinityOptions(NamedTuple):
    """How scores are computed, and which of them count."""

    factor: float
    causal: bool
    probes: int  # number of random directions; 0: exact
    generator: torch.Generator | None
    own: bool = True  # whether a sequence attends to itself: then padding is no query either


def affinity_penalty(
    seen: Products | Scores, probes: int, generator: torch.Generator | None
) -> torch.Tensor:
    """The penalty of one attention: the mean over samples of the sum over heads."""
    if isinstance(seen, Scores):
        return _written_out(seen) / len(seen.scores)
    q, k = seen.query.flatten(0, 1), seen.key.flatten(0, 1)
    bias = seen.bias
    if bias is not None:  # for every group of heads, or one for all
        one = bias.shape[:2].numel() == 1
        shape = (*seen.query.shape[:2], *bias.shape[2:])
        bias = bias.flatten(0, 1) if one else bias.expand(shape).flatten(0, 1)
    options = AffinityOptions(seen.factor, seen.causal, probes, generator, seen.own)
    total: torch.Tensor = AffinityPenalty.apply(q, k, bias, options)  # type: ignore[no-untyped-call]
    return total / len(seen.query)


def _written_out(seen: Scores) -> torch.Tensor:
    """The penalty from the weights themselves, where the model forms them anyway."""
    weights = seen.weights
    tokens, keys = weights.shape[-2:]
    real = (seen.scores.detach() > HIDDEN).any(dim=-2)
    if seen.own and tokens == keys:
        weights = weights * real[..., :, None]
    gram = weights.mT @ weights if keys <= tokens else weights @ weights.mT
    return gram.square().sum() - 2 * weights.square().sum() + real.sum()


class AffinityPenalty(torch.autograd.Function):
    """The penalty summed over samples and heads; queries and keys are (groups, tokens, width).

    For long sequences the derivatives are computed with the value, and kept. For short ones, which
    are cheap, they are computed in the backward pass: the model keeps queries and keys anyway.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: torch.Tensor,
        keys: torch.Tensor,
        bias: torch.Tensor | None,
        options: AffinityOptions,
    ) -> torch.Tensor:
        """The value, and perhaps the derivatives, which the backward pass then only scales."""
        wanted = any(ctx.needs_input_grad[:3])
        later = wanted and not options.probes and queries.shape[1] * keys.shape[1] <= SHORT
        steep = bias is not None and ctx.needs_input_grad[2]
        total, slopes = _summed(queries, keys, bias, options, wanted and not later, steep)
        ctx.options, ctx.later, ctx.steep = options, later, steep
        ctx.save_for_backward(*((queries, keys, bias) if later else slopes))
        return total

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The derivatives, scaled."""
        slopes = ctx.saved_tensors
        if ctx.later:
            with torch.autocast(slopes[0].device.type, enabled=False):
                queries, keys, bias = slopes
                _, slopes = _summed(queries, keys, bias, ctx.options, True, ctx.steep)
        found = [None if slope is None else given[0] * slope for slope in slopes]
        return (*found, None)


def _summed(
    queries: torch.Tensor,
    keys: torch.Tensor,
    bias: torch.Tensor | None,
    options: AffinityOptions,
    wanted: bool,
    steep: bool,
) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """The value, and where wanted the derivatives for queries, keys and (steep) bias."""
    slopes = [torch.zeros_like(t) if wanted else t.new_zeros(0) for t in (queries, keys)]
    rise = torch.zeros_like(bias) if bias is not None and wanted and steep else None
    total = queries.new_zeros(())
    size = max(1, AT_ONCE // (queries.shape[1] * keys.shape[1]))
    for start in range(0, len(queries), size):
        part = slice(start, start + size)
        q, k = queries[part], keys[part]
        b = None if bias is None else bias[part] if len(bias) > 1 else bias
        weights, count = _weights(q, k, b, options)
        value, slope = _value(weights, options, wanted)
        total += value + count
        if slope is None:
            continue
        # Through the softmax, in place: s∘(g − ⟨s, g⟩).
        slope.mul_(weights)
        slope.sub_(weights * slope.sum(dim=-1, keepdim=True))
        if rise is not None:
            _add_up(rise[part] if len(rise) > 1 else rise, slope)
        slope.mul_(options.factor)
        slopes[0][part] = torch.bmm(slope, k)
        slopes[1][part] = torch.bmm(slope.mT, q)
    return total, [*slopes, rise]


def _add_up(into: torch.Tensor, slope: torch.Tensor) -> None:
    into += slope.sum_to_size(into.shape) if slope.shape != into.shape else slope


def _weights(
    q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None, options: AffinityOptions
) -> tuple[torch.Tensor, torch.Tensor | float]:
    """Weights of some heads, rows of padding 0, and how many keys count in all."""
    scores = torch.bmm(q, k.mT).mul_(options.factor)
    tokens, seen = scores.shape[1:]
    count: torch.Tensor | float = float(
        len(scores) * (min(seen, tokens) if options.causal else seen)
    )
    kept = None
    if bias is not None:
        scores += bias
        visible = (bias > HIDDEN).expand(-1, tokens, seen)
        keys = visible.any(dim=1)
        count = keys.sum().to(q.dtype) * (len(scores) / len(keys))
        kept = visible.any(dim=2, keepdim=True)
        if options.own and tokens == seen:
            kept = kept & keys[:, :, None]
    if options.causal:
        rows = torch.arange(tokens, device=q.device)[:, None]
        scores.masked_fill_(rows < torch.arange(seen, device=q.device), -torch.inf)
    weights = torch.softmax(scores, dim=-1)
    return weights if kept is None else weights.masked_fill_(~kept, 0.0), count


def _value(
    weights: torch.Tensor, options: AffinityOptions, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """‖AᵀA‖² − 2‖A‖², or an unbiased estimate, and the derivative with respect to A."""
    if options.probes:
        return _estimate(weights, options, wanted)
    rows, columns = weights.shape[1:]
    square = options.causal and rows == columns
    gram = gram_matrix(weights, triangular=square) if columns <= rows else gram_matrix(weights.mT)
    value = gram.square().sum() - 2 * gram.diagonal(dim1=1, dim2=2).sum()
    if not wanted:
        return value, None
    gram.diagonal(dim1=1, dim2=2).sub_(1.0)
    slope = torch.bmm(weights, gram) if columns <= rows else torch.bmm(gram, weights)
    return value, slope.mul_(4.0)


def _estimate(
    weights: torch.Tensor, options: AffinityOptions, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """E‖(AᵀA − I)z‖² over random signs z, less the constant that the caller adds for I."""
    shape = (len(weights), weights.shape[2], options.probes)
    signs = torch.randint(2, shape, generator=options.generator, device=weights.device)
    z = signs.to(weights.dtype).mul_(2).sub_(1)
    moved = torch.bmm(weights, z)
    off = torch.bmm(weights.mT, moved)  # AᵀAz
    value = (off.square().sum() - 2 * moved.square().sum()) / options.probes
    if not wanted:
        return value, None
    off = off - z
    slope = torch.bmm(moved, off.mT).baddbmm_(torch.bmm(weights, off), z.mT)
    return value, slope.mul_(2 / options.probes)
