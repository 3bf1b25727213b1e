"""Choices: what a bound from below is free to choose for each row, at the operations of a network.

Every choice within its limits gives a true bound, so that a search for good ones needs no proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class HingeChoices:
    """Slopes below an activation, at the places where it is bent.

    Attributes
    ----------
    places
        Which entries of the node, counted through all tokens, (places,).
    slopes
        Of the lines below the hinge, (rows, places).
    onward
        Coefficients on the inputs with which the rows went on last, (rows, places).
    """

    places: torch.Tensor
    slopes: torch.Tensor
    onward: torch.Tensor | None = None


@dataclass
class HingeStops:
    """Places of an activation at which rows are not relaxed but taken down.

    Attributes
    ----------
    places
        As in :class:`HingeChoices`.
    onward
        Coefficients on the inputs of the activation with which the rows go on, (rows, places).
    coefficients
        Those on its outputs with which the rows came, (rows, places).
    """

    places: torch.Tensor
    onward: torch.Tensor
    coefficients: torch.Tensor | None = None


@dataclass
class AttentionChoices:
    """Where softmax is linearised, and how its products with values are (affine-attention-below).

    Attributes
    ----------
    tangents
        Centred scores at which the exponential is replaced by its tangent, (1 or rows, heads,
        queries, keys).
    corners
        Between −1 and 1: which corner of changed weight and changed value the product is linear
        at.
    """

    tangents: torch.Tensor
    corners: torch.Tensor
