"""Results of a capture: softmaxes of attention, and attention that it could not see."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut.models._tracking.key_product import Product
from taut.models._tracking.origin import Origin
from taut.models.score_blocks import FusedScores, WrittenScores


class Captured(NamedTuple):
    """One softmax of attention."""

    path: str  # of the module that ran it
    reader: WrittenScores | FusedScores  # of its scores, in blocks of rows
    product: Product | None = None  # the product with the keys that gave the scores, if known
    origin: Origin | None = None  # samples, tokens and features of the scores, in their layout

    @property
    def fused(self) -> bool:
        """Whether a fused kernel computed it, so that its scores were never written out."""
        return isinstance(self.reader, FusedScores)

    @property
    def scores(self) -> torch.Tensor:
        """All scores, keys last. Those of fused attention are computed here: for small models."""
        return self.reader.whole

    @property
    def weights(self) -> torch.Tensor:
        """Softmax of the scores."""
        return self.scores.softmax(dim=-1)


class Missed(NamedTuple):
    """Attention whose scores could not be seen."""

    path: str
    operation: str
