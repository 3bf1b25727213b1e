"""Statistics of every row of scores: extremes, entropy, weights and exact constants."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from taut._softmax import local_lipschitz, row_sums, row_sums_and_constants
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
    leader: torch.Tensor  # the first key with the largest score

    @property
    def broken(self) -> torch.Tensor:
        """Rows with NaN or +inf."""
        return torch.isnan(self.top) | (self.top == math.inf)

    @property
    def kept(self) -> torch.Tensor:
        """Rows that see a key and are not broken."""
        return (self.top > HIDDEN) & ~self.broken

    @property
    def entropy(self) -> torch.Tensor:
        """In nats: log Σ exp(d) − mean."""
        return (self.rest.log1p() - self.mean).clamp(min=0.0)


class RowConstants(NamedTuple):
    """The exact constants of every row in l1 and in l2, and upper bounds rounded outward."""

    one: torch.Tensor
    two: torch.Tensor
    one_upper: torch.Tensor
    two_upper: torch.Tensor


def reduced(scores: torch.Tensor) -> RowSums:
    """The sums of every row of scores, (..., keys), in double precision."""
    if scores.device.type != "cpu":
        return _anywhere(scores)
    rows = scores.reshape(-1, scores.shape[-1]).numpy()
    return RowSums(*_lines(row_sums(rows, HIDDEN, torch.get_num_threads()), scores))


def reduced_with_constants(scores: torch.Tensor) -> tuple[RowSums, RowConstants]:
    """The sums of every row, and the constants of those that are kept."""
    if scores.device.type == "cpu":
        rows = scores.reshape(-1, scores.shape[-1]).numpy()
        numbers, constants = row_sums_and_constants(rows, HIDDEN, torch.get_num_threads())
        sums = RowSums(*_lines(numbers, scores))
        _, one, one_upper, _, two, two_upper = _lines(constants, scores)
        if not bool((torch.isnan(one + two) & sums.kept).any()):
            return sums, RowConstants(one, two, one_upper, two_upper)
    else:
        sums = _anywhere(scores)
    kept = sums.kept
    # Rows that do not count become zeros, so that they do not stop the others.
    clean = scores if bool(kept.all()) else torch.where(kept[..., None], scores, 0.0)
    first, second = local_lipschitz(clean, p=(1, 2))
    return sums, RowConstants(first.value, second.value, first.upper, second.upper)


def _lines(numbers: np.ndarray[Any, np.dtype[Any]], scores: torch.Tensor) -> list[torch.Tensor]:
    """Lines of numbers, one for each row, in the shape of the rows."""
    return list(torch.from_numpy(numbers).reshape(-1, *scores.shape[:-1]).unbind(0))


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
    leader = is_top.int().argmax(dim=-1)
    return RowSums(top.double(), lowest.double(), seen.double(), rest, mean, first, leader.double())
