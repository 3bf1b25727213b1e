"""What the capture hands over: softmaxes of attention, and what it could not see."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut.audit._origin import Origin
from taut.audit._product import Product


class Seen(NamedTuple):
    """One softmax of attention."""

    path: str  # of the module that ran it
    scores: torch.Tensor  # what went in, the keys last
    weights: torch.Tensor  # what came out, laid out alike
    dim: int  # along which it was taken, counted from the front
    product: Product | None = None  # the keys that the scores came from, where this is known
    origin: Origin | None = None  # samples, tokens and features of the scores, laid out alike


class Missed(NamedTuple):
    """Attention whose scores could not be seen."""

    path: str
    operation: str
