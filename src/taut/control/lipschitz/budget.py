"""Budget: how a bound for the whole network is divided among its layers."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from taut._base.checks import positive_in_range

AttentionKind = Literal["dot_product", "cosine", "l2"]


class Budget(NamedTuple):
    """What every part of a :class:`LipschitzTransformer` may do, so that the whole stays in bounds.

    All of it belongs to the output. Attention and feed-forward networks are divided by what their
    constants can be at most, so that they are 1-Lipschitz; residual connections are averages,
    (1 − s)x + s·f(x), which are 1-Lipschitz if f is, and keep tokens in the ball in which they
    began.

    Attributes
    ----------
    sharpness
        No score of a head is larger than this, however the tokens are chosen.
    attention, mlp
        Factors behind attention and feed-forward networks.
    output
        Factor of the logits: the bound of the whole network.
    """

    sharpness: float
    attention: float
    mlp: float
    output: float


class AttentionCosts(NamedTuple):
    """Constants of attention with all maps at their limits: of keys and values, and of queries.

    With H heads the constant in the largest token is √H·keys + queries. In l2 it is √k·keys +
    queries, k being the largest sum of a column of weights.
    """

    keys: float
    queries: float


def attention_costs(
    kind: AttentionKind, heads: int, c: float, *, in_tokens: bool
) -> AttentionCosts:
    """What attention costs with scores that range over 2c, apart from fixed terms.

    Dot products: 1 + c and c (theorem attn-core), in the largest token √(1 + c²) and c (theorem
    attn-heads-token). Cosines move √H times as far with their tokens, and what they add to the
    values is not uncorrelated with it: 1 + c√H and c√H. Distances: √(1 + 2c·max(2c − 1, 0)) and c
    (theorem l2-ball).
    """
    if kind == "cosine":
        moved = c * math.sqrt(heads)
        return AttentionCosts(1 + moved, moved)
    if kind == "l2":
        return AttentionCosts(math.sqrt(1 + 2 * c * max(2 * c - 1, 0.0)), c)
    return AttentionCosts(math.hypot(1.0, c) if in_tokens else 1 + c, c)


def divide(
    target: float, *, heads: int, sharpness: float, slope: float, kind: AttentionKind
) -> Budget:
    """The budget of a network that is ``target``-Lipschitz in the largest token.

    With all weights at their limits, a feed-forward network has the largest slope of its activation
    as its constant, and attention in H heads √H·keys + queries (:func:`attention_costs`).

    A bound in l2 depends on how often a token is seen, so that attention itself has the factor
    (:meth:`BoundedAttention.l2_constant`).
    """
    output = positive_in_range(target, name="target")
    c = positive_in_range(sharpness, name="sharpness")
    keys, queries = attention_costs(kind, heads, c, in_tokens=True)
    return Budget(c, 1 / (math.sqrt(heads) * keys + queries), 1 / slope, output)
