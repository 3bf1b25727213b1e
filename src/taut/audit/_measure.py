"""From the scores of a softmax to the numbers that are kept of its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from taut._bound import Bound
from taut._lipschitz import local_lipschitz
from taut.audit._head_state import LIMIT, series
from taut.audit._layout import Rows

Array = np.ndarray[Any, np.dtype[Any]]
HIDDEN = -1e30  # scores below are masks: the lowest number of the type, or minus infinity


class Measured(NamedTuple):
    """Numbers of every row, (samples, heads, queries)."""

    values: dict[str, Array]
    kept: Array  # rows that count
    broken: Array  # rows with NaN or +inf


@torch.no_grad()
def measure(rows: Rows, real: torch.Tensor | None, norms: Sequence[float] = ()) -> Measured:
    """Exact constants, entropy, largest weight and range of scores of every row.

    ``real`` is False for queries that are padding, (samples, queries). For other ``norms`` than 1,
    2 and ∞ there is an upper bound of every row (theorem local-p-bracket); the constant in l2 is
    below it, as no norm of a symmetric matrix is smaller.
    """
    scores = rows.scores.float() if rows.scores.dtype != torch.float64 else rows.scores
    weights = rows.weights.to(scores.dtype)
    masked = scores < HIDDEN
    visible = torch.where(masked, -math.inf, scores)
    top = visible.amax(dim=-1)
    lowest = torch.where(masked, math.inf, scores).amin(dim=-1)
    broken = ~torch.isfinite(top) & (top != -math.inf)  # NaN or +inf somewhere
    broken |= torch.isnan(lowest)
    kept = torch.isfinite(top) & ~broken
    if real is not None:
        kept &= real[:, None, :].to(kept.device)
    entropy = torch.special.entr(weights).sum(dim=-1)
    seen = (~masked).sum(dim=-1)
    even = entropy / seen.clamp(min=2).to(entropy.dtype).log()
    one, two = local_lipschitz(_clean(visible, kept), p=(1, 2))
    values = {
        "one": one.value,
        "two": two.value,
        "entropy": entropy,
        "evenness": even.clamp(0.0, 1.0),
        "top": weights.amax(dim=-1).clamp(0.0, 1.0),
        "first": weights[..., 0],
        "range": torch.where(kept, top - lowest, 0.0),
        "score": torch.where(kept, top, 0.0),
    }
    for p in norms:
        values[series(p)] = _upper(one, two, p)
    return Measured(
        {name: value.cpu().numpy() for name, value in values.items()},
        kept.cpu().numpy(),
        broken.cpu().numpy(),
    )


def _upper(one: Bound, two: Bound, p: float) -> torch.Tensor:
    """‖M‖₁^θ‖M‖₂^(1−θ) with θ = |1 − 2/p|, rounded up; never above ½."""
    share = abs(1 - 2 / p)
    found: torch.Tensor = one.upper.double() ** share * two.upper.double() ** (1 - share)
    return (found * (1 + 1e-12)).clamp(max=LIMIT)


def _clean(visible: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Rows that do not count must not stop the others: they become zeros."""
    if bool(kept.all()):
        return visible
    return torch.where(kept[..., None], visible, 0.0)
