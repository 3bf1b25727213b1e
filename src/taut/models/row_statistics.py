"""Statistics of every row of scores besides its constants: extremes, entropy and weights."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut._softmax import row_sums
from taut.models.masks import HIDDEN

# Relative error of ``rest``: an exponential is off by at most 80 + 2 units in the last place of
# single precision (theirs is the depth d ≥ −80), and a sum of 128 by at most 127.
SUMS = (82 + 127 + 2) * 2.0**-23
FORGOTTEN = 2e-35  # at least exp(−80): what a key further below the largest score may weigh


class RowSums(NamedTuple):
    """Numbers of every row, with d the differences of its scores from the largest one."""

    top: torch.Tensor  # the largest score; NaN if any is NaN
    lowest: torch.Tensor  # the smallest one that is not masked
    seen: torch.Tensor  # keys that are not masked
    rest: torch.Tensor  # Σ exp(d) over all keys but one with the largest score
    mean: torch.Tensor  # Σ exp(d)·d / Σ exp(d)
    first: torch.Tensor  # weight of the first key

    @property
    def entropy(self) -> torch.Tensor:
        """In nats: log Σ exp(d) − mean."""
        return (self.rest.log1p() - self.mean).clamp(min=0.0)


def reduced(scores: torch.Tensor) -> RowSums:
    """The sums of every row of scores, (..., keys), in double precision."""
    if scores.device.type != "cpu":
        return _anywhere(scores)
    rows = scores.reshape(-1, scores.shape[-1]).numpy()
    found = torch.from_numpy(row_sums(rows, HIDDEN, torch.get_num_threads()))
    return RowSums(*found.reshape(6, *scores.shape[:-1]).unbind(0))


def _anywhere(scores: torch.Tensor) -> RowSums:
    """The same by whole tensors, on accelerators."""
    shown = scores > HIDDEN
    top = scores.amax(dim=-1)
    depth = (scores - top[..., None]).double()
    size = depth.exp()
    is_top = depth == 0
    rest = torch.where(is_top, 0.0, size).sum(dim=-1) + (is_top.sum(dim=-1) - 1)
    mean = torch.where(shown, depth * size, 0.0).sum(dim=-1) / (1 + rest)
    lowest = torch.where(shown, scores, torch.inf).amin(dim=-1)
    seen = shown.sum(dim=-1)
    first = torch.where(shown[..., 0], size[..., 0], 0.0) / (1 + rest)
    return RowSums(top.double(), lowest.double(), seen.double(), rest, mean, first)
