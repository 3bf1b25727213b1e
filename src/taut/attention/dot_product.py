"""Dot-product attention at given tokens."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from taut._base.array import Array, quietly
from taut._base.array_rounding import round_down, round_up
from taut._base.bound import Bound
from taut._base.domain import At, Ball, Domain, Restricted, radii
from taut._base.matrix_norm import Matrix, lengths, spectral_norms
from taut._base.norm import FROBENIUS, TOKEN
from taut._base.rounding import EPS, plus
from taut._base.upper_bound import bounded_above
from taut.attention.checks import numbers
from taut.attention.dot_product_ball import FIXED, dot_product_ball
from taut.attention.head_at_tokens import Evaluated, Tokens, evaluate, tokens, turns
from taut.attention.heads import allowance, contexts, joint, queries
from taut.attention.jacobian import assemble
from taut.attention.key_weights import energies, together
from taut.attention.layer import Layer

Wrt = Literal["input", "queries", "context"]


@quietly
def dot_product(
    layer: Layer,
    domain: At | Ball | Array,
    *,
    n: int | None = None,
    context: At | Ball | Array = None,
    mask: Array = None,
    causal: bool = False,
    bias: Array = None,
    rotations: Array = None,
    wrt: Wrt = "input",
    norm: Literal["l2", "token"] = "l2",
    exact: bool = False,
) -> Bound:
    """Lipschitz constant of an attention layer at given tokens, near them, or in a ball.

    At given tokens it bounds the norm of the derivative (theorems attn-local and attn-token). Near
    them, and in a ball, :func:`dot_product_ball` answers, with the ball that holds all tokens.

    Parameters
    ----------
    layer
        Weights, heads, scale and soft cap.
    domain
        Tokens, one a row, that queries are made of, and keys and values unless there is a context:
        an array, :class:`taut.At` or :class:`taut.Ball`.
    n
        Number of tokens, for a ball without a shape.
    context
        Tokens that keys and values are made of (cross-attention), of the same kind as the domain.
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
    Bound(at most 1.61..., l2, at these tokens; attn-local; rounding estimated)
    >>> dot_product(layer, At([[1.0, 0.0], [-1.0, 0.0]], radius=0.1))
    Bound(at most 2.9..., l2, within 0.1 of these inputs, n = 2; attn-ball)
    >>> dot_product(layer, [[1.0, 0.0], [-1.0, 0.0]], exact=True)
    Bound(exact 1.60154, l2, at these tokens; attn-local; rounding estimated)
    """
    if _is_large(domain) or _is_large(context):
        if exact:
            raise ValueError("the exact norm is available at given tokens only, without a radius")
        (ball, n), (other, m) = _ball(domain, n, layer.inputs), (None, None)
        if context is not None:
            other, m = _ball(context, None, layer.context_inputs)
        found = dot_product_ball(
            layer, ball, n=n, context=other, context_n=m, mask=mask, causal=causal, bias=bias,
            rotary=_largest_turn(layer, rotations, ball, other, n, m), wrt=wrt, norm=norm,
        )  # fmt: skip
        if isinstance(domain, Ball):
            return found
        here = domain if isinstance(domain, At) else At(domain, name="these tokens")
        assert isinstance(found.domain, Restricted)
        return found._replace(domain=here.given(*found.domain.conditions))
    if n is not None:
        raise ValueError("n is for a Ball without a shape: given tokens are as many as there are")
    x, context = (d.inputs if isinstance(d, At) else d for d in (domain, context))
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
    kind = TOKEN if norm == "token" else FROBENIUS
    return bounded_above(upper, kind, _domain(at, wrt), theorem, rounding="estimated")


def _is_large(domain: At | Ball | Array | None) -> bool:
    """Whether a domain holds more than one input."""
    return isinstance(domain, Ball) or (isinstance(domain, At) and bool(np.any(radii(domain))))


def _ball(domain: At | Ball | Array, n: int | None, width: int) -> tuple[Ball, int | None]:
    """The ball that holds all tokens, and how many there are."""
    if isinstance(domain, Ball):
        return domain, n
    at = domain if isinstance(domain, At) else At(domain)
    x = numbers(at.inputs, name="tokens")
    if x.shape[1] != width:
        raise ValueError(f"tokens must be of width {width}, their shape is {x.shape}")
    if n not in (None, len(x)):
        raise ValueError(f"there are {len(x)} tokens, and n = {n}")
    return Ball(float(plus(lengths(x), radii(at)).max())), len(x)


def _largest_turn(
    layer: Layer, rotations: Array, ball: Ball, other: Ball | None, n: int | None, m: int | None
) -> float:
    """The largest norm of the matrices of rotary positions, from above; 0 if there are none."""
    counts = [n, m, *(b.shape[0] for b in (ball, other) if b is not None and b.shape is not None)]
    found = turns(layer, rotations, max((c for c in counts if c is not None), default=0))
    return 0.0 if found is None else float(spectral_norms(found).max())


def _domain(at: Tokens, wrt: Wrt) -> Domain:
    return At(at.x, name="these tokens").given(
        "" if at.itself else "this context",
        FIXED[wrt],
        "" if at.seen.all() else "this mask",
        "" if at.bias is None else "this bias",
    )


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
        rounding="estimated",
    )  # fmt: skip
