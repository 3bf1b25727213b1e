"""Results of a capture: softmaxes of attention, and attention that it could not see."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut.models._tracking.key_product import Product
from taut.models._tracking.origin import Origin


class Captured(NamedTuple):
    """One softmax of attention."""

    path: str  # of the module that ran it
    scores: torch.Tensor  # the input of the softmax, keys last
    weights: torch.Tensor  # its output, in the same layout
    dim: int  # the axis of the softmax in the model's layout
    product: Product | None = None  # the product with the keys that gave the scores, if known
    origin: Origin | None = None  # samples, tokens and features of the scores, in the same layout


class Missed(NamedTuple):
    """Attention whose scores could not be seen."""

    path: str
    operation: str
