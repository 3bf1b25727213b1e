"""The compiled kernel: from logits to the exact 1- and 2-constants at about the cost of a softmax.

Rows go in batches that stay in the cache: find the largest and the second largest entry, replace
the row by exponentials while summing them, then solve the secular equation (``secular.py``)
by expanding it once or twice about a good guess. Probabilities are never written to memory. A row
is worked in its own precision, sums across blocks and all scalars in float64.

Importing this module imports numba; the first call compiles (seconds) and later runs load the
compiled code from numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from taut._base.compiled import compiled
from taut._base.threads import in_threads
from taut._softmax.kernel.arithmetic import LN2, limits
from taut._softmax.kernel.batch import (
    QUANTITIES,
    dead_rows,
    first_guess,
    roots,
    scalings,
    sums,
    tops,
    write,
)

Matrix = np.ndarray[Any, np.dtype[Any]]

PAD = 64  # rows are padded with -inf to whole SIMD iterations: no scalar remainder loops
# Entries per block: sums run in the input's precision inside a block and compensated in float64
# across blocks. Short, because the roundings of a constant tail all have one sign.
BLOCK32, BLOCK64 = 128, 64
BATCH = 8192  # entries per batch
ROWS = 128  # most rows per batch
SHARE = 1 << 17  # entries that are worth starting a thread for
CHUNK = 1 << 18  # entries copied at a time where rows are not contiguous

# Bound on the relative error in units of eps: summing a block in at least 2 (float64) or 4
# (float32) lanes of 32 terms 16, the exponential 1, sums across blocks, root and final operations
# 4, and a margin. Differences and products are compensated, so depth does not enter.
ERROR = 24.0


def row_constants(x: Matrix, scale: float, ceiling: float, threads: int) -> Matrix:
    """λ‖M‖₁ and λ‖M‖₂ of every row of logits, 1e-30 ≤ λ ≤ 1e30, each with its certified sides.

    The result has six lines: lower, value and upper of the one, then of the other. ``ceiling`` is
    λ/2 rounded up to the precision of ``x``. A row with NaN or +inf gives NaN.
    """
    fill = constants_kernel(x.dtype, scale, ceiling)
    out = np.empty((6, *x.shape[:-1]), dtype=x.dtype)
    flat = out.reshape(6, -1)

    def work(tasks: list[tuple[int, Matrix]]) -> None:
        for first, part in tasks:
            packed = np.require(part, requirements=["C", "A"]).reshape(-1, part.shape[-1])
            fill(packed, first, flat)

    threads = max(1, min(threads, x.size // SHARE))
    tasks = list(_chunks(x, threads))
    in_threads(work, [tasks[i::threads] for i in range(threads)])
    return out


def constants_kernel(
    dtype: np.dtype[Any], scale: float, ceiling: float
) -> Callable[[Matrix, int, Matrix], None]:
    """A function that fills the columns of ``out`` from ``first`` on: of (rows, first, out)."""
    kernel = _compiled(dtype.name)
    relative, absolute = error_bound(dtype, scale)

    def fill(rows: Matrix, first: int, out: Matrix) -> None:
        kernel(rows, first, scale, ceiling, relative, absolute, out)

    return fill


def error_bound(dtype: np.dtype[Any], scale: float) -> tuple[float, float]:
    """Relative and absolute error that rounding may have caused."""
    info = np.finfo(dtype)
    return ERROR * float(info.eps), 4 * max(1.0, scale) * float(info.smallest_subnormal)


def _chunks(x: Matrix, parts: int) -> Iterator[tuple[int, Matrix]]:
    """Parts of ``x`` with the number of their first row, as views.

    Contiguous rows go in as many parts as asked for. Others have to be copied before use, so they
    go in parts of about CHUNK entries.
    """
    if x.size == 0:
        return
    if x.flags.c_contiguous:
        flat = x.reshape(-1, x.shape[-1])
        step = -(-len(flat) // parts)
        for first in range(0, len(flat), step):
            yield first, flat[first : first + step]
    elif x.ndim == 1 or x.size <= CHUNK:
        yield 0, x
    else:
        step = max(1, CHUNK * len(x) // x.size)
        rows = x[0].size // x.shape[-1]
        for i in range(0, len(x), step):
            block = x[i] if step == 1 else x[i : i + step]
            for first, part in _chunks(block, 1):
                yield i * rows + first, part


@lru_cache
def _compiled(dtype: str) -> Callable[..., None]:
    """The kernel for one precision, compiled or loaded from numba's cache on first use."""
    element = getattr(types, dtype)
    # Declared read-only, so that arrays that are (JAX's) need no second compilation.
    rows = types.Array(element, 2, "C", readonly=True)
    number = types.float64
    signature = types.void(
        rows, types.int64, number, number, number, number, types.Array(element, 2, "C")
    )
    return compiled(_constants, signature)


def _constants(
    x: Any,
    first: int,
    scale: float,
    ceiling: float,
    relative: float,
    absolute: float,
    out: Any,
) -> None:
    """Fill the columns of ``out`` from ``first`` on from the rows of ``x`` (compiled)."""
    rows, n = x.shape
    block = BLOCK32 if x.itemsize == 4 else BLOCK64
    blocks = (n + block - 1) // block
    size = (n + blocks * PAD - 1) // (blocks * PAD) * PAD
    merge = 1  # blocks are joined for the pass over the poles
    while blocks % (2 * merge) == 0 and merge * size < 512:
        merge *= 2
    batch = max(1, min(ROWS, BATCH // (blocks * size)))
    buffer = np.empty((batch, blocks * size), x.dtype)
    by_block = buffer.reshape((batch, blocks, size))
    by_half = buffer.reshape((batch, blocks // merge, 2, merge * size // 2))
    state = np.zeros((QUANTITIES, batch))
    eps, _, _, ln2_rest = limits(buffer[0, 0])
    # λ = λ_high (1 + q): q λ_high d is q k ln 2 but for q r, |r| < 0.35, so ln2_low can carry it.
    scale_high = x.dtype.type(scale)
    ln2_low = x.dtype.type(ln2_rest - (scale - scale_high) / scale_high * LN2)
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        tops(x, start, m, buffer, state)
        alive = scalings(state, m, scale, scale_high, ln2_low)
        sums(by_block, state, m, scale_high, ln2_low)
        if alive < m:
            dead_rows(x, start, state, m)
        first_guess(state, m, eps)
        roots(by_half, state, m, eps / 16.0)
        write(state, m, first + start, scale, ceiling, (relative, absolute), out)
