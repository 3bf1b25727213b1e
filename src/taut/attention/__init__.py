"""Bounds for attention layers: arrays in, :class:`taut.Bound` out.

:class:`Layer` holds the weights of dot-product attention. :func:`dot_product` bounds it at given
tokens and :func:`dot_product_ball` for all tokens of bounded length; without such a domain it has
no Lipschitz constant. :func:`scsa` and :func:`l2_attention` bound the two attention maps that have
one everywhere, and :func:`affinity` the attention weights as a function of the query.
Weights are laid out as in ``torch.nn.Linear``: (outputs, inputs).
"""

from taut.attention._affinity import affinity
from taut.attention._ball import dot_product_ball
from taut.attention._castin import castin_ball
from taut.attention._jacobian import jacobian
from taut.attention._layer import Layer
from taut.attention._local import dot_product
from taut.attention._neighbours import l2_attention
from taut.attention._scsa import scsa

__all__ = [
    "Layer",
    "affinity",
    "castin_ball",
    "dot_product",
    "dot_product_ball",
    "jacobian",
    "l2_attention",
    "scsa",
]
