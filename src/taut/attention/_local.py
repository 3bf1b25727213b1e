"""Dot-product attention at given tokens."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._array import Array, quietly
from taut._bound import Bound
from taut._rounding import round_down, round_up
from taut.attention._heads import allowance, contexts, joint, queries
from taut.attention._inputs import Matrix
from taut.attention._jacobian import assemble
from taut.attention._layer import Layer
from taut.attention._rows import energies, together
from taut.attention._spectral import EPS, FROBENIUS, TOKEN, bounded
from taut.attention._tokens import Evaluated, Tokens, evaluate, tokens

Wrt = Literal["input", "queries", "context"]


@quietly
def dot_product(
    layer: Layer,
    x: Array,
    *,
    context: Array = None,
    mask: Array = None,
    causal: bool = False,
    bias: Array = None,
    rotations: Array = None,
    wrt: Wrt = "input",
    norm: Literal["l2", "token"] = "l2",
    exact: bool = False,
) -> Bound:
    """Norm of the derivative of an attention layer at the tokens x (theorems attn-local, -token).

    Parameters
    ----------
    layer
        Weights, heads, scale and soft cap.
    x
        Tokens, one a row, that queries are made of, and keys and values unless ``context`` is.
    context
        Tokens that keys and values are made of (cross-attention).
    mask, causal
        Boolean mask, True where a query (row) sees a key (column), and the causal one.
    bias
        Fixed finite term added to the scores, (queries, keys) or (heads, queries, keys).
    rotations
        Rotary positions: one (width, width) matrix for each position, applied to query and key.
    wrt
        ``"input"``: all tokens that go in, x, or x and the context together; ``"queries"``: x as
        far as it makes queries; ``"context"``: tokens as far as they make keys and values.
    norm
        ``"l2"``, Frobenius over tokens, or ``"token"``, the largest l2 norm of a token.
    exact
        The norm itself, from the SVD of the whole derivative, in l2: (tokens · width)³ operations.

    Examples
    --------
    >>> import numpy as np
    >>> layer = Layer(np.eye(2), np.eye(2), np.eye(2), scale=1.0)
    >>> dot_product(layer, [[1.0, 0.0], [-1.0, 0.0]])
    Bound(at most 1.61..., l2, at these tokens; attn-local)
    >>> dot_product(layer, [[1.0, 0.0], [-1.0, 0.0]], exact=True)
    Bound(exact 1.60154, l2, at these tokens; attn-local)
    """
    at = tokens(layer, x, context, mask, causal, bias, rotations)
    if wrt not in ("input", "queries", "context"):
        raise ValueError(f"wrt must be input, queries or context, got {wrt!r}")
    if norm not in ("l2", "token"):
        raise ValueError(f"norm must be l2 or token, got {norm!r}")
    if exact:
        if norm != "l2":
            raise ValueError("the exact norm is available for norm='l2' only")
        return _exact(layer, at, wrt)
    folded = [evaluate(layer, at, h, fold=True) for h in range(len(layer.heads))]
    slack = allowance(folded)
    query = None if wrt == "context" else queries(layer, folded)
    if norm == "token":
        upper, theorem = _largest_token(layer, folded, query, at, wrt), "attn-token"
    elif wrt == "queries":
        assert query is not None
        upper, theorem = float(query.max()), "attn-local"
    else:
        upper, theorem = _frobenius(layer, at, folded, query), "attn-local"
    upper = float(round_up(upper, slack[0], absolute=slack[1]))
    return bounded(upper, TOKEN if norm == "token" else FROBENIUS, _domain(at, wrt), theorem)


def _domain(at: Tokens, wrt: Wrt) -> str:
    moved = {"input": "", "queries": ", keys and values fixed", "context": ", queries fixed"}[wrt]
    return f"at these tokens{moved}"


def _frobenius(layer: Layer, at: Tokens, folded: list[Evaluated], query: Matrix | None) -> float:
    """Best of the bounds on [T G], where T and G act on different tokens, or on T + G."""

    def joined(column: Matrix) -> float:
        if query is not None and not at.itself:
            return math.hypot(float(query.max()), math.sqrt(float(column.max())))
        return together(column, query)

    return min(joined(column) for column in contexts(layer, at, folded))


def _largest_token(
    layer: Layer, heads: list[Evaluated], query: Matrix | None, at: Tokens, wrt: Wrt
) -> float:
    """The largest row: ‖Tᵢ‖ + κᵢ, or what of it is asked for."""
    rows = np.zeros(len(at.x))
    if wrt != "queries":
        rows = sum((np.sqrt(energies(head, np.ones(len(at.y)))) for head in heads), rows)
        whole = joint(layer, at, heads)
        if whole is not None:
            rows = np.minimum(rows, np.sqrt(whole[1](np.ones(len(at.y)))))
    return float((rows if query is None else rows + query).max())


def _exact(layer: Layer, at: Tokens, wrt: Wrt) -> Bound:
    matrix, error = assemble(layer, at, wrt)
    found = float(np.linalg.svd(matrix, compute_uv=False)[0])
    relative = 8 * max(matrix.shape) * EPS
    return Bound(
        float(round_down(found, relative, absolute=error)),
        float(round_up(found, relative, absolute=error)),
        "exact", FROBENIUS, _domain(at, wrt), "attn-local", found,
    )  # fmt: skip
