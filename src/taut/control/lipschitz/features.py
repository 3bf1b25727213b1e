"""What the output map of a Lipschitz transformer reads, and how far pairs of logits can part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from taut._base.domain import Ball, Everywhere
from taut._base.rounding import Numbers, enlarged, times
from taut.control.lipschitz.all_lengths import for_all_inputs
from taut.networks import certify

if TYPE_CHECKING:
    from taut.control.lipschitz.transformer import LipschitzTransformer


class Features(nn.Module):
    """A Lipschitz transformer without its output map."""

    def __init__(self, model: LipschitzTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Rows that the output map reads, of embeddings or of images."""
        found: Tensor = self.model.features(x if self.model.text else self.model.embedding(x))
        return found


def pair_constants(
    model: LipschitzTransformer, domain: Ball | Everywhere | None, norm: Literal["l2", "token"]
) -> Numbers:
    """Constants of logit a less logit b: that of the features times |w_a − w_b| (margin-radius)."""
    # An image is one token, and so are its features: both norms are l2 there, the smaller counts.
    norms: tuple[Literal["l2", "token"], ...] = (norm,) if model.text else ("l2", "token")
    features = Features(model)
    if domain is None:
        found = min(float(for_all_inputs(features, model, each).upper) for each in norms)
    else:
        found = min(
            float(certify(features, domain, norm=each, measure=False).bound.upper[0])
            for each in norms
        )
    rows = model.output.detach().double().cpu()
    apart = torch.linalg.vector_norm(rows[:, None] - rows, dim=-1).numpy()
    apart = enlarged(apart, rows.shape[1] + 8)
    return np.asarray(times(apart, found, abs(model.factor)))
