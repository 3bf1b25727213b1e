"""Sums of every row of logits that statistics are made of, on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from taut._base.threads import in_threads

Matrix = np.ndarray[Any, np.dtype[Any]]
SHARE = 1 << 17  # logits that are worth starting a thread for


def row_sums(x: Matrix, hidden: float, threads: int = 1) -> Matrix:
    """Six lines of numbers, one column for each row of ``x`` (rows, logits), in float64.

    With d the differences of the logits from the largest one, the lines are: the largest logit
    (NaN if one is NaN); the lowest and the number of those above ``hidden``; Σ exp(d) over all but
    one of the largest; Σ exp(d)·d / Σ exp(d); the weight of the first. Where the largest is
    infinite or NaN the sums are 0.
    """
    x = np.ascontiguousarray(x)
    out = np.empty((6, len(x)))
    kernel = _compiled(x.dtype.name)
    step = max(1, -(-len(x) // max(1, min(threads, x.size // SHARE))))

    def work(first: int) -> None:
        kernel(x[first : first + step], hidden, out[:, first : first + step])

    if x.size:
        in_threads(work, list(range(0, len(x), step)))
    return out


@lru_cache
def _compiled(dtype: str) -> Callable[..., None]:
    """The kernel for one precision, compiled or loaded from numba's cache on first use."""
    from numba import types

    from taut._base.compiled import compiled
    from taut._softmax.kernel.row_sums import fill_sums

    rows = types.Array(getattr(types, dtype), 2, "C", readonly=True)
    out = types.Array(types.float64, 2, "A")
    return compiled(fill_sums, types.void(rows, types.float64, out))
