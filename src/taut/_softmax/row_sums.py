"""Sums of every row of logits that statistics are made of, and its constants, on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from taut._base.threads import in_threads

Matrix = np.ndarray[Any, np.dtype[Any]]
SHARE = 1 << 17  # logits that are worth starting a thread for
LINES = 7


def row_sums(x: Matrix, hidden: float, threads: int = 1) -> Matrix:
    """Seven lines of numbers, one column for each row of ``x`` (rows, logits), in float64.

    With d the differences of the logits from the largest one, the lines are: the largest logit
    (NaN if one is NaN); the lowest and the number of those above ``hidden``; Σ exp(d) over all but
    one of the largest; Σ exp(d)·d / Σ exp(d); the weight of the first; the place of the largest,
    the first if there are several. Where the largest is infinite or NaN the sums are 0.
    """
    x = np.require(x, requirements=["C", "A"])
    out = np.empty((LINES, len(x)))
    kernel = _compiled(x.dtype.name)

    def work(rows: slice) -> None:
        kernel(x[rows], hidden, out[:, rows])

    if x.size:
        in_threads(work, _shares(x, threads))
    return out


def row_sums_and_constants(x: Matrix, hidden: float, threads: int = 1) -> tuple[Matrix, Matrix]:
    """The lines of :func:`row_sums`, and lower, value and upper of the constants in l1 and in l2.

    The six lines of constants are what ``local_lipschitz`` gives, and NaN for rows that it refuses
    or leaves to its portable form. For many small blocks of rows this costs less.
    """
    from taut._softmax.kernel.driver import constants_kernel

    x = np.require(x, requirements=["C", "A"])
    sums, constants = np.empty((LINES, len(x))), np.empty((6, len(x)), dtype=x.dtype)
    first, second = _compiled(x.dtype.name), constants_kernel(x.dtype, scale=1.0, ceiling=0.5)

    def work(rows: slice) -> None:
        first(x[rows], hidden, sums[:, rows])
        second(x[rows], rows.start, constants)

    if x.size:
        in_threads(work, _shares(x, threads))
    return sums, constants


def _shares(x: Matrix, threads: int) -> list[slice]:
    """The rows in as many parts as are worth a thread each."""
    step = max(1, -(-len(x) // max(1, min(threads, x.size // SHARE))))
    return [slice(first, first + step) for first in range(0, len(x), step)]


@lru_cache
def _compiled(dtype: str) -> Callable[..., None]:
    """The kernel for one precision, compiled or loaded from numba's cache on first use."""
    from numba import types

    from taut._base.compiled import compiled
    from taut._softmax.kernel.row_sums import fill_sums

    rows = types.Array(getattr(types, dtype), 2, "C", readonly=True)
    out = types.Array(types.float64, 2, "A")
    return compiled(fill_sums, types.void(rows, types.float64, out))
