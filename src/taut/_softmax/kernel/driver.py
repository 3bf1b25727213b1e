"""The compiled kernel: from logits to the exact 1- and 2-constants at about the cost of a softmax.

Rows go in batches that stay in the cache: find the largest and the second largest entry, replace
the row by exponentials while summing them, then solve the secular equation (``secular.py``)
by expanding it once or twice about a good guess. Probabilities are never written to memory. A row
is worked in its own precision, sums across blocks and all scalars in float64. Short rows are worked
side by side, one in each lane of a vector.

Importing this module imports numba; the first call compiles (seconds) and later runs load the
compiled code from numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from taut._base.threads import in_threads
from taut._softmax.kernel.error import error_bound
from taut._softmax.kernel.found import FOUND
from taut._softmax.kernel.power_method import STILL
from taut._softmax.kernel.signatures import (
    careful_gradients_compiled,
    constants_compiled,
    gradients_compiled,
    lower_sides_compiled,
)

Matrix = np.ndarray[Any, np.dtype[Any]]

SHARE = 1 << 16  # entries that are worth waking a thread for
CHUNK = 1 << 18  # entries copied at a time where rows are not contiguous
_NOTHING = np.empty((FOUND, 0))


def row_constants(
    x: Matrix,
    scale: float,
    ceiling: float,
    threads: Callable[[], int],
    found: Matrix | None = None,
) -> tuple[Matrix, bool]:
    """λ‖M‖₁ and λ‖M‖₂ of every row of logits, 1e-30 ≤ λ ≤ 1e30, each with its certified sides.

    The result has six lines: lower, value and upper of the one, then of the other. ``ceiling`` is
    λ/2 rounded up to the precision of ``x``. Also returned is whether all sides are in order: a row
    with NaN or +inf gives NaN. ``found``, of FOUND lines, is filled with what ``row_gradients``
    needs to know of every row. How many ``threads`` there may be is only asked if it matters.
    """
    fill = constants_kernel(x.dtype, scale, ceiling, found)
    out = np.empty((6, *x.shape[:-1]), x.dtype)
    flat = out.reshape(6, -1)
    worth = x.size // SHARE
    if worth < 2 and x.flags.c_contiguous and x.flags.aligned:
        return out, fill(x.reshape(-1, x.shape[-1]), 0, flat) == 0
    wrong: list[int] = []

    def work(tasks: list[tuple[int, Matrix]]) -> None:
        for first, part in tasks:
            packed = np.require(part, requirements=["C", "A"]).reshape(-1, part.shape[-1])
            wrong.append(fill(packed, first, flat))

    count = max(1, min(threads(), worth))
    tasks = list(_chunks(x, count))
    in_threads(work, [tasks[i::count] for i in range(count)])
    return out, not any(wrong)


def constants_kernel(
    dtype: np.dtype[Any], scale: float, ceiling: float, found: Matrix | None = None
) -> Callable[[Matrix, int, Matrix], int]:
    """A function of (rows, first, out) that fills the columns of ``out`` from ``first`` on.

    It returns the number of rows that it could not solve.
    """
    kernel = constants_compiled(dtype.char)
    relative, absolute = error_bound(dtype.itemsize == 4, scale)

    kept = _NOTHING if found is None else found

    def fill(rows: Matrix, first: int, out: Matrix) -> int:
        return kernel(rows, first, scale, ceiling, relative, absolute, out, kept)

    return fill


def row_gradients(
    x: Matrix,
    found: Matrix,
    first: Matrix | None,
    second: Matrix | None,
    scale: float,
    threads: Callable[[], int],
) -> tuple[Matrix, bool]:
    """Gradients of first·λ‖M‖₁ + second·λ‖M‖₂ with respect to logits ``x``, in their shape.

    ``found`` is from ``row_constants``. Also returned is whether all rows could be done.
    """
    shape, x = x.shape, _packed(x).reshape(-1, x.shape[-1])
    first, second = (
        np.zeros(len(x), x.dtype) if given is None else _packed(given, x.dtype).reshape(-1)
        for given in (first, second)
    )
    out, left = np.empty(x.shape, x.dtype), np.empty(len(x), np.int64)
    kernel = gradients_compiled(x.dtype.char)
    wrong: list[int] = []

    def work(part: slice) -> None:
        rows, weights, place = x[part], (first[part], second[part]), out[part]
        lines = found if len(rows) == len(x) else np.ascontiguousarray(found[:, part])
        count = kernel(rows, lines, *weights, scale, place, left[part])
        if count:
            careful = careful_gradients_compiled(x.dtype.char)
            wrong.append(careful(rows, left[part][:count], *weights, scale, place))

    worth = x.size // SHARE
    count = max(1, min(threads(), worth)) if worth > 1 else 1
    step = max(1, -(-len(x) // count))
    if x.size:
        in_threads(work, [slice(start, start + step) for start in range(0, len(x), step)])
    return out.reshape(shape), not any(wrong)


def _packed(x: Matrix, dtype: np.dtype[Any] | None = None) -> Matrix:
    """The array itself if the kernel can read it as it is, else a copy."""
    if x.flags.c_contiguous and x.flags.aligned and (dtype is None or x.dtype == dtype):
        return x
    return np.require(x, dtype, ["C", "A"])


def row_lower_sides(
    x: Matrix, roots: Matrix, q: float, scale: float, converged: bool, threads: int
) -> tuple[Matrix, Matrix]:
    """A proved lower bound of λ‖M‖_q of every row, 2 < q, and the direction that reaches it.

    ``roots`` are the 2-norms, to which the search looks for a start. ``converged`` takes all steps,
    also those that gain little.
    """
    rows = np.require(x, requirements=["C", "A"]).reshape(-1, x.shape[-1])
    starts = np.ascontiguousarray(roots, dtype=np.float64).reshape(-1)
    directions, out = np.empty(rows.shape), np.empty(len(rows))
    kernel, still = lower_sides_compiled(x.dtype.char), -1.0 if converged else STILL
    # A row takes about fifty times as long as its constants.
    count = max(1, min(threads, 50 * x.size // SHARE))
    step = max(1, -(-len(rows) // count))

    def work(first: int) -> None:
        part = slice(first, first + step)
        kernel(rows[part], starts[part], q, scale, still, directions[part], out[part])

    if x.size:
        in_threads(work, list(range(0, len(rows), step)))
    return out.reshape(x.shape[:-1]), directions.reshape(x.shape)


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
