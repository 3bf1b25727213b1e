"""Statistics of every row of scores besides its constants, in one compiled pass on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from taut._base.threads import in_threads
from taut.models.masks import HIDDEN

SHARE = 1 << 17  # numbers that are worth starting a thread for


def reduced(scores: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Largest and lowest score, number of visible keys, Σ wx and largest weight of every row.

    The largest score of a row with NaN is NaN.
    """
    if scores.device.type != "cpu":
        return _anywhere(scores, weights)
    keys = scores.shape[-1]
    x, w = (np.ascontiguousarray(t.numpy()).reshape(-1, keys) for t in (scores, weights))
    out = np.empty((5, len(x)), dtype=x.dtype)
    kernel = _compiled(x.dtype.name)
    threads = max(1, min(torch.get_num_threads(), x.size // SHARE))
    step = -(-len(x) // threads) if len(x) else 1

    def work(first: int) -> None:
        part = slice(first, first + step)
        kernel(x[part], w[part], out[:, part])

    if len(x):
        in_threads(work, list(range(0, len(x), step)))
        out[0][np.isnan(w[:, 0])] = np.nan  # one NaN or infinity makes all weights NaN
    found = torch.from_numpy(out).reshape(5, *scores.shape[:-1])
    return tuple(found.unbind(0))


def _anywhere(scores: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same by whole tensors, on accelerators."""
    masked = scores < HIDDEN
    lowest = torch.where(masked, torch.inf, scores).amin(dim=-1)
    seen = (~masked).sum(dim=-1).to(scores.dtype)
    mean = (torch.where(masked, 0.0, scores) * weights).sum(dim=-1)
    return scores.amax(dim=-1), lowest, seen, mean, weights.amax(dim=-1)


@lru_cache
def _compiled(dtype: str) -> Callable[..., None]:
    import numba
    from numba import types

    from taut._base.compiled import compiled

    element = getattr(numba, dtype)
    rows = types.Array(element, 2, "C", readonly=True)
    signature = types.void(rows, rows, types.Array(element, 2, "A"))
    # Loops are vectorised only if sums may be reordered and NaN need not be respected.
    return compiled(_rows, signature, fastmath={"reassoc", "nsz", "nnan"})


def _rows(x: Any, w: Any, out: Any) -> None:
    """Fill the columns of ``out`` (compiled)."""
    hidden = x.dtype.type(HIDDEN)
    zero, one = x.dtype.type(0), x.dtype.type(1)
    endless = x.dtype.type(np.inf)
    for i in range(x.shape[0]):
        top, low, best = -endless, endless, -endless
        seen = mean = zero
        for j in range(x.shape[1]):
            value, weight = x[i, j], w[i, j]
            shown = value > hidden
            top = max(top, value)
            best = max(best, weight)
            low = min(low, value if shown else endless)
            seen += one if shown else zero
            mean += weight * value if shown else zero
        out[0, i], out[1, i], out[2, i], out[3, i], out[4, i] = top, low, seen, mean, best
