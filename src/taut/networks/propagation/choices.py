"""Choices: what a bound from below is free to choose for each row, at the operations of a network.

Every choice within its limits gives a true bound, so that a search for good ones needs no proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class HingeChoices:
    """Slopes and signs at the places of an activation where it is bent.

    Attributes
    ----------
    places
        Which entries of the node, counted through all tokens, (places,).
    slopes
        Of the lines below the hinge, (rows, places).
    signs
        1 where only inputs ≥ 0 of the activation count, −1 where only those ≤ 0 do, 0 where both
        do, (rows, places); None if all of them count everywhere.
    multipliers
        Numbers ≥ 0 for the conditions that ``signs`` are (theorem split-multipliers).
    """

    places: torch.Tensor
    slopes: torch.Tensor
    signs: torch.Tensor | None = None
    multipliers: torch.Tensor | None = None


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
