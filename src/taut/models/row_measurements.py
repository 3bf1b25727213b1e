"""Measure every row of a softmax: constants, entropy, largest weight, range of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from taut._base.array import namespace
from taut._base.bound import Bound
from taut._softmax import interpolate, local_lipschitz
from taut.models.layout import AttentionRows
from taut.models.masks import HIDDEN
from taut.models.row_statistics import reduced

Array = np.ndarray[Any, np.dtype[Any]]
LIMIT = 0.5  # no constant of softmax exceeds it


def constant_key(p: float) -> str:
    """The name under which constants in l_p are kept: exact ones for 1, 2 and ∞, else bounds."""
    return {1.0: "one", 2.0: "two", math.inf: "one"}.get(p, f"l{p:g}")


class RowMeasurements(NamedTuple):
    """Numbers of every row, (samples, heads, queries)."""

    values: dict[str, Array]
    kept: Array  # rows that count
    broken: Array  # rows with NaN or +inf


@torch.no_grad()
def measure_rows(rows: AttentionRows, norms: Sequence[float] = ()) -> RowMeasurements:
    """Measure constants, entropy, largest weight and range of scores of every row.

    Padding tokens do not count. For ``norms`` other than 1, 2 and ∞ there is an upper
    bound of every row (theorem local-p-bracket); the constant in l2 is below it, as no norm of a
    symmetric matrix is smaller.
    """
    scores = rows.scores.float() if rows.scores.dtype != torch.float64 else rows.scores
    weights = rows.weights
    if weights.dtype != scores.dtype:  # rounded weights need not sum to 1
        weights = scores.softmax(dim=-1)
    top, lowest, seen, mean, best = reduced(scores, weights)
    broken = torch.isnan(top) | torch.isnan(lowest) | (top == math.inf)
    kept = (top > HIDDEN) & ~broken
    if rows.real is not None:
        kept &= rows.real.to(kept.device)
        broken &= rows.real.to(kept.device)
    # With Z the sum of exponentials, log Z = top − log(best weight), and H = log Z − Σ wx.
    entropy = torch.where(kept, (top - best.log() - mean).clamp(min=0.0), 0.0)
    even = entropy / seen.clamp(min=2).log()
    one, two = local_lipschitz(_clean(scores, kept), p=(1, 2))
    values = {
        "one": one.value,
        "two": two.value,
        "entropy": entropy,
        "evenness": even.clamp(0.0, 1.0),
        "top": best.clamp(0.0, 1.0),
        "first": weights[..., 0],
        "range": torch.where(kept, top - lowest, 0.0),
        "score": torch.where(kept, top, 0.0),
    }
    for p in norms:
        values[constant_key(p)] = _upper(one, two, p)
    return RowMeasurements(
        {name: value.cpu().numpy() for name, value in values.items()},
        kept.cpu().numpy(),
        broken.cpu().numpy(),
    )


def _upper(one: Bound, two: Bound, p: float) -> torch.Tensor:
    """‖M‖₁^θ‖M‖₂^(1−θ) with θ = |1 − 2/p|, rounded up; never above ½."""
    first, second = one.upper.double(), two.upper.double()
    found: torch.Tensor = interpolate(namespace(first), first, second, p)
    return found.clamp(max=LIMIT)


def _clean(scores: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Replace rows that do not count by zeros, so that they do not stop the others."""
    return scores if bool(kept.all()) else torch.where(kept[..., None], scores, 0.0)
