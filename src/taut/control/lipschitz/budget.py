"""Budget: how a bound for the whole network is divided among its layers."""

from __future__ import annotations

import math
from typing import NamedTuple

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
    target: float, *, heads: int, tokens: int | None, sharpness: float, slope: float
) -> Budget:
    """The budget of a network that is ``target``-Lipschitz.

    With all weights at their limits, a feed-forward network has the largest slope of its activation
    as its constant, and attention in H heads with scores up to c

    * in the largest token √(H(1 + c²)) + c (theorem attn-heads-token),
    * in l2 over n ``tokens`` √n(1 + c) + c (theorem attn-core).
    """
    output = positive_in_range(target, name="target")
    c = positive_in_range(sharpness, name="sharpness")
    if tokens is None:
        constant = math.sqrt(heads * (1 + c * c)) + c
    else:
        constant = math.sqrt(tokens) * (1 + c) + c
    return Budget(c, 1 / constant, 1 / slope, output)
