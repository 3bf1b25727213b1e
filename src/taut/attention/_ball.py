"""Dot-product attention for all tokens of bounded length."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._array import Array, quietly
from taut._bound import Bound
from taut.attention._inputs import Matrix, additive, count, length, visible
from taut.attention._layer import Layer
from taut.attention._limits import heaviest_column
from taut.attention._reach import Reach, reach_of
from taut.attention._spectral import (
    FROBENIUS,
    TOKEN,
    bounded,
    hypotenuse,
    plus,
    root,
    spectral,
    times,
)  # fmt: skip

Wrt = Literal["input", "queries", "context"]


@quietly
def dot_product_ball(
    layer: Layer,
    radius: float,
    *,
    n: int,
    context_radius: float | None = None,
    context_n: int | None = None,
    mask: Array = None,
    causal: bool = False,
    bias: Array = None,
    rotary: bool = False,
    wrt: Wrt = "input",
    norm: Literal["l2", "token"] = "l2",
) -> Bound:
    """Lipschitz constant of an attention layer on n tokens, each of l2 norm at most ``radius``.

    Parameters
    ----------
    layer
        Weights, heads, scale and soft cap.
    radius, n
        Largest length of a token, and the number of tokens. LayerNorm with gain g and shift b gives
        √width·max|g| + ‖b‖.
    context_radius, context_n
        The same for the tokens of keys and values; given, it is cross-attention.
    mask, causal, bias, wrt, norm
        As in :func:`dot_product`.
    rotary
        Whether rotary positions (any orthogonal matrices) are applied to queries and keys.

    Examples
    --------
    >>> import numpy as np
    >>> layer = Layer(np.eye(2), np.eye(2), np.eye(2), scale=1.0)
    >>> dot_product_ball(layer, 1.0, n=16)
    Bound(at most 4.24977, l2, tokens of length at most 1, n = 16; attn-ball)
    >>> dot_product_ball(layer, 1.0, n=16, norm="token")
    Bound(at most 2.41422, largest token l2, tokens of length at most 1, n = 16; attn-token)
    """
    if wrt not in ("input", "queries", "context"):
        raise ValueError(f"wrt must be input, queries or context, got {wrt!r}")
    if norm not in ("l2", "token"):
        raise ValueError(f"norm must be l2 or token, got {norm!r}")
    n = count(n, name="n")
    radius = length(radius, name="radius")
    itself = context_radius is None and context_n is None
    far = radius if context_radius is None else length(
        context_radius, name="context_radius"
    )  # fmt: skip
    m = n if context_n is None else count(context_n, name="context_n")
    if itself and layer.inputs != layer.context_inputs:
        raise ValueError(
            f"queries take tokens of width {layer.inputs} and keys of {layer.context_inputs}: give "
            "context_radius and context_n"
        )
    alike = mask is None and bias is None and not causal  # then one row stands for all n
    rows = 1 if alike else n
    seen = visible(mask, causal, (rows, m))
    fixed = additive(bias, (len(layer.heads), rows, m))
    reaches = [reach_of(layer, head, radius, far, rotary) for head in layer.heads]
    aligned = rotary or layer.softcap is not None
    moves = bool((seen.sum(axis=1) > 1).any())  # with one key each, no weight ever changes
    query = _queries(layer, reaches, far) if moves else 0.0
    if norm == "token":
        context = _tokenwise(layer, reaches, far, aligned, moves)
    else:
        context = _context(layer, reaches, far, seen, fixed, aligned, n // rows)
    both = hypotenuse if norm == "l2" and not itself else plus
    upper = {"queries": query, "context": context, "input": both(query, context)}[wrt]
    domain = f"tokens of length at most {radius:g}, n = {n}"
    if not itself:
        domain += f", context of length at most {far:g}, n = {m}"
    domain += {"input": "", "queries": ", keys and values fixed", "context": ", queries fixed"}[wrt]
    masked = ", this mask" if not seen.all() else ""
    kind = (TOKEN, "attn-token") if norm == "token" else (FROBENIUS, "attn-ball")
    return bounded(upper, kind[0], domain + masked, kind[1])


def _queries(layer: Layer, reaches: list[Reach], far: float) -> float:
    """‖T‖ ≤ ‖Wv‖·far·‖α Wqᵀk‖ for each head, added up or stacked."""
    added = plus(
        *(times(spectral(h.folded), far, r.key) for h, r in zip(layer.heads, reaches, strict=True))
    )
    stacked = hypotenuse(
        *(times(spectral(h.wv), far, r.key) for h, r in zip(layer.heads, reaches, strict=True))
    )
    return min(added, times(_outer(layer), stacked))


def _context(
    layer: Layer,
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
            osc = (osc + (np.where(seen, bias[index], -math.inf).max(axis=1) - low)) * (1 + 1e-15)
        energy = times(reach.query, reach.query, far, far)
        each.append(root(heaviest_column(seen, energy, osc, aligned=aligned, copies=copies)))
        keys.append(root(heaviest_column(seen, energy, osc, plain=0.0, copies=copies)))
        flat = max(flat, root(heaviest_column(seen, 0.0, osc, copies=copies)))
    wv = [spectral(head.wv) for head in layer.heads]
    added = plus(*(times(spectral(h.folded), k) for h, k in zip(layer.heads, each, strict=True)))
    stacked = hypotenuse(*(times(w, k) for w, k in zip(wv, each, strict=True)))
    values = times(flat, spectral(np.vstack([head.wv for head in layer.heads])))
    apart = plus(values, hypotenuse(*(times(w, k) for w, k in zip(wv, keys, strict=True))))
    return min(added, times(_outer(layer), min(stacked, apart)))


def _tokenwise(layer: Layer, reaches: list[Reach], far: float, aligned: bool, moves: bool) -> float:
    """κ ≤ ‖Wv‖√(1 + energy) for each head, or ‖Wv‖(1 + √energy) under a cap or rotations."""
    join = plus if aligned else hypotenuse
    levers = [join(1.0, times(r.query, far)) if moves else 1.0 for r in reaches]
    added = plus(*(times(spectral(h.folded), k) for h, k in zip(layer.heads, levers, strict=True)))
    stacked = hypotenuse(
        *(times(spectral(h.wv), k) for h, k in zip(layer.heads, levers, strict=True))
    )
    return min(added, times(_outer(layer), stacked))


def _outer(layer: Layer) -> float:
    return 1.0 if layer.wo is None else spectral(layer.wo)
