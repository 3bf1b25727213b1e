"""Bounds for attention layers: arrays in, :class:`taut.Bound` out.

:class:`Layer` holds the weights of dot-product attention. :func:`dot_product` bounds it at given
tokens and :func:`dot_product_ball` for all tokens of bounded length; without such a domain it has
no Lipschitz constant. :func:`cosine`, :func:`multihead_cosine` and :func:`l2` bound the two
attention maps that have one everywhere, and :func:`affinity` the attention weights as a function of
the query.
Weights are laid out as in ``torch.nn.Linear``: (outputs, inputs).
"""

from taut.attention.affinity import affinity
from taut.attention.castin import castin_ball
from taut.attention.cosine import cosine
from taut.attention.dot_product import dot_product
from taut.attention.dot_product_ball import dot_product_ball
from taut.attention.jacobian import jacobian
from taut.attention.l2 import l2
from taut.attention.layer import Layer
from taut.attention.multihead_cosine import multihead_cosine

__all__ = [
    "Layer",
    "affinity",
    "castin_ball",
    "cosine",
    "dot_product",
    "dot_product_ball",
    "jacobian",
    "l2",
    "multihead_cosine",
]
