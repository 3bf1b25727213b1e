"""Dot-product attention for all tokens of bounded length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from taut._base.array import Array, quietly
from taut._base.attention_weight_limits import heaviest_column
from taut._base.bound import Bound
from taut._base.domain import Ball
from taut._base.matrix_norm import Matrix, spectral
from taut._base.norm import FROBENIUS, TOKEN
from taut._base.rounding import hypotenuse, plus, root, times, up
from taut._base.upper_bound import bounded_above
from taut.attention.checks import additive, ball, length, visible
from taut.attention.layer import Layer
from taut.attention.score_reach import Reach, reach_of

Wrt = Literal["input", "queries", "context"]
FIXED = {"input": "", "queries": "keys and values fixed", "context": "queries fixed"}


@quietly
def dot_product_ball(
    layer: Layer,
    domain: Ball | float,
    *,
    n: int | None = None,
    context: Ball | float | None = None,
    context_n: int | None = None,
    mask: Array = None,
    causal: bool = False,
    bias: Array = None,
    rotary: bool | float = False,
    wrt: Wrt = "input",
    norm: Literal["l2", "token"] = "l2",
) -> Bound:
    """Lipschitz constant of an attention layer on n tokens of bounded length.

    Parameters
    ----------
    layer
        Weights, heads, scale and soft cap.
    domain, n
        The ball in which every token lies, or its radius, and the number of tokens, if the ball has
        no shape. LayerNorm with gain g and shift b gives the radius √width·max|g| + ‖b‖.
    context, context_n
        The same for the tokens of keys and values; given, it is cross-attention. A context without
        a number of tokens has as many as the domain.
    mask, causal, bias, wrt, norm
        As in :func:`dot_product`.
    rotary
        Whether rotary positions (any orthogonal matrices) are applied to queries and keys; or the
        largest spectral norm of such matrices, if it is not 1.

    Examples
    --------
    >>> import numpy as np
    >>> layer = Layer(np.eye(2), np.eye(2), np.eye(2), scale=1.0)
    >>> dot_product_ball(layer, Ball(1.0), n=16)
    Bound(at most 4.24977, l2, tokens of length at most 1, n = 16; attn-ball)
    >>> dot_product_ball(layer, Ball(1.0), n=16, norm="token")
    Bound(at most 2.41422, largest token l2, tokens of length at most 1, n = 16; attn-token)
    """
    if wrt not in ("input", "queries", "context"):
        raise ValueError(f"wrt must be input, queries or context, got {wrt!r}")
    if norm not in ("l2", "token"):
        raise ValueError(f"norm must be l2 or token, got {norm!r}")
    here, n = ball(domain, n, layer.inputs, name="domain")
    itself = context is None and context_n is None
    far_ball = Ball(here.radius) if context is None else context
    other, m = ball(far_ball, context_n, layer.context_inputs, name="context", otherwise=n)
    radius, far = here.radius, other.radius
    if itself and layer.inputs != layer.context_inputs:
        raise ValueError(
            f"queries take tokens of width {layer.inputs} and keys of {layer.context_inputs}: give "
            "a context"
        )
    alike = mask is None and bias is None and not causal  # then one row stands for all n
    rows = 1 if alike else n
    seen = visible(mask, causal, (rows, m))
    fixed = additive(bias, (len(layer.heads), rows, m))
    turn = length(float(rotary), name="rotary")
    reaches = [reach_of(layer, head, radius, far, turn) for head in layer.heads]
    aligned = turn > 0 or layer.softcap is not None
    moves = bool((seen.sum(axis=1) > 1).any())  # with one key each, no weight ever changes
    sizes = ValueNorms.of(layer)
    query = _queries(sizes, reaches, far) if moves else 0.0
    if norm == "token":
        context = _tokenwise(sizes, reaches, far, aligned, moves)
    else:
        context = _context(layer, sizes, reaches, far, seen, fixed, aligned, n // rows)
    both = hypotenuse if norm == "l2" and not itself else plus
    upper = {"queries": query, "context": context, "input": both(query, context)}[wrt]
    where = here.given(
        f"n = {n}",
        "" if itself else f"context of {other}, n = {m}",
        FIXED[wrt],
        "" if seen.all() else "this mask",
        "" if fixed is None else "this bias",
    )
    kind = (TOKEN, "attn-token") if norm == "token" else (FROBENIUS, "attn-ball")
    return bounded_above(upper, kind[0], where, kind[1], rounding="proved")


class ValueNorms(NamedTuple):
    """Norms of the values of a layer, from above."""

    folded: list[float]  # ‖Wo Wv‖ of each head
    alone: list[float]  # ‖Wv‖ of each head
    outer: float  # ‖Wo‖ of all heads, 1 without one

    @classmethod
    def of(cls, layer: Layer) -> ValueNorms:
        """Compute them, once for a bound."""
        alone = [spectral(head.wv) for head in layer.heads]
        return cls([head.value_norm for head in layer.heads], alone, _outer(layer))

    def together(self, levers: Sequence[float]) -> float:
        """The heads, each with its lever: added up, or stacked before the output projection."""
        added = plus(*(times(size, k) for size, k in zip(self.folded, levers, strict=True)))
        return min(added, times(self.outer, self.stacked(levers)))

    def stacked(self, levers: Sequence[float]) -> float:
        """The heads on top of each other."""
        return hypotenuse(*(times(size, k) for size, k in zip(self.alone, levers, strict=True)))


def _queries(sizes: ValueNorms, reaches: list[Reach], far: float) -> float:
    """‖T‖ ≤ ‖Wv‖·far·‖α Wqᵀk‖ for each head, added up or stacked."""
    return sizes.together([times(far, reach.key) for reach in reaches])


def _context(
    layer: Layer,
    sizes: ValueNorms,
    reaches: list[Reach],
    far: float,
    seen: Matrix,
    bias: Matrix | None,
    aligned: bool,
    copies: int,
) -> float:
    """The part through keys and values: heads added up, stacked, or stacked part by part."""
    n = len(seen)
    each, keys, flat = [], [], 0.0
    for index, reach in enumerate(reaches):
        osc = np.full(n, reach.osc)
        if bias is not None:
            low = np.where(seen, bias[index], math.inf).min(axis=1)
            high = np.where(seen, bias[index], -math.inf).max(axis=1)
            osc = plus(osc, up(high - low))
        energy = times(reach.query, reach.query, far, far)
        each.append(root(heaviest_column(seen, energy, osc, aligned=aligned, copies=copies)))
        keys.append(root(heaviest_column(seen, energy, osc, plain=0.0, copies=copies)))
        flat = max(flat, root(heaviest_column(seen, 0.0, osc, copies=copies)))
    values = times(flat, spectral(np.vstack([head.wv for head in layer.heads])))
    apart = plus(values, sizes.stacked(keys))
    return min(sizes.together(each), times(sizes.outer, apart))


def _tokenwise(
    sizes: ValueNorms, reaches: list[Reach], far: float, aligned: bool, moves: bool
) -> float:
    """κ ≤ ‖Wv‖√(1 + energy) for each head, or ‖Wv‖(1 + √energy) under a cap or rotations."""
    join = plus if aligned else hypotenuse
    return sizes.together([join(1.0, times(r.query, far)) if moves else 1.0 for r in reaches])


def _outer(layer: Layer) -> float:
    return 1.0 if layer.wo is None else spectral(layer.wo)
