"""Budget: how a bound for the whole network is divided among its layers."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from taut._base.checks import positive_in_range


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


def divide(
    target: float,
    *,
    heads: int,
    sharpness: float,
    slope: float,
    kind: Literal["dot_product", "cosine"],
) -> Budget:
    """The budget of a network that is ``target``-Lipschitz in the largest token.

    With all weights at their limits, a feed-forward network has the largest slope of its activation
    as its constant. Attention in H heads with scores up to c has √(H(1 + c²)) + c for dot products
    (theorem attn-heads-token). Cosines move √H times as far with their tokens, and what they add to
    the values is not uncorrelated with it: √H(1 + c√H) + c√H (theorem attn-core).

    A bound in l2 depends on how often a token is seen, so that attention itself has the factor
    (:meth:`BoundedAttention.l2_constant`).
    """
    output = positive_in_range(target, name="target")
    c = positive_in_range(sharpness, name="sharpness")
    if kind == "cosine":
        moved = c * math.sqrt(heads)
        constant = math.sqrt(heads) * (1 + moved) + moved
    else:
        constant = math.sqrt(heads * (1 + c * c)) + c
    return Budget(c, 1 / constant, 1 / slope, output)
