"""Passes of the compiled kernel over one row, vectorised along the row in the input's precision.

The buffer of a batch is seen as (row, entry), (row, block, entry) or (row, block, half, entry):
inner loops then run over a whole axis from 0, and LLVM need not consider negative indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import (
    largest,
    plus,
    select,
    times,
    where_below,
    where_between,
    wide_vectors,
)
from taut._softmax.kernel.arithmetic import exponential, exponential_parts


@njit(forceinline=True)
def find_top(x: Any, row: int) -> Any:
    """The largest entry of a row, NaN if an entry is NaN."""
    wide_vectors()
    zero, one = x.dtype.type(0), x.dtype.type(1)
    top, bad = x.dtype.type(-np.inf), zero
    for i in range(x.shape[1]):
        value = x[row, i]
        top = largest(top, value)
        bad = plus(bad, select(value != value, one, zero))
    return select(bad > zero, x.dtype.type(np.nan), top)


@njit(forceinline=True)
def strike_top(x: Any, row: int, buffer: Any, b: int, top: Any) -> Any:
    """Copy a row without the entries equal to its largest, padded with -inf.

    Returns how many those were, and the largest of the others.
    """
    wide_vectors()
    n = x.shape[1]
    nothing = x.dtype.type(-np.inf)
    zero, one = x.dtype.type(0), x.dtype.type(1)
    second, ties = nothing, zero
    for i in range(n):
        value = x[row, i]
        is_top = value == top
        value = select(is_top, nothing, value)
        buffer[b, i] = value
        ties = plus(ties, select(is_top, one, zero))
        second = largest(second, value)
    for i in range(n, buffer.shape[1]):
        buffer[b, i] = nothing
    return ties, second


@njit(forceinline=True)
def exponentiate(
    buffer: Any, b: int, block: int, top: Any, scale: Any, ln2_low: Any, shifter: Any, floor: Any
) -> Any:
    """Replace the entries of a block by exponentials; their sum and the sum of their squares."""
    wide_vectors()
    total = squares = buffer.dtype.type(0)
    for i in range(buffer.shape[2]):
        e = exponential(buffer[b, block, i], top, scale, ln2_low, shifter, floor)
        buffer[b, block, i] = e
        total = plus(total, e)
        squares = plus(squares, times(e, e))
    return total, squares


@njit(error_model="numpy", forceinline=True)
def pole_terms(e: Any, f: Any, x: Any, gap: Any) -> Any:
    """E²ρ and Eρ^j, j = 2, 3, 4, of two entries together, where ρ = gap/(x − E) ≤ 1.

    One division serves both. The first has E² rather than E because ΣE is known better.
    """
    u, v = x - e, x - f
    quotient = gap / (u * v)
    r, t = quotient * v, quotient * u
    e1, f1 = e * r, f * t
    e2, f2 = e1 * r, f1 * t
    e3, f3 = e2 * r, f2 * t
    return (
        plus(times(e1, e), times(f1, f)),
        plus(e2, f2),
        plus(e3, f3),
        plus(times(e3, r), times(f3, t)),
    )


@njit(error_model="numpy", forceinline=True)
def pole_sums(buffer: Any, b: int, block: int, x: Any, gap: Any) -> Any:
    """Sums of ``pole_terms`` over a block."""
    wide_vectors()
    s0 = s1 = s2 = s3 = buffer.dtype.type(0)
    for i in range(buffer.shape[3]):
        t0, t1, t2, t3 = pole_terms(buffer[b, block, 0, i], buffer[b, block, 1, i], x, gap)
        s0, s1, s2, s3 = plus(s0, t0), plus(s1, t1), plus(s2, t2), plus(s3, t3)
    return s0, s1, s2, s3


@njit(error_model="numpy", forceinline=True)
def pole_distance(
    value: Any, floor: Any, second: Any, gap: Any, root: Any, scale: Any, shifter: Any
) -> Any:
    """The weight e of some entries in units of the second largest, and X − e for the root X.

    The weight is 0 at the top entry and at those below the floor. γ + (1 − e) keeps its digits next
    to e = 1, as there the exponential is 1 + t with a known t.
    """
    _, t, e = exponential_parts(scale * (value - second), shifter)
    e = where_between(floor, value, second, e, 0.0)
    return e, where_below(0.7075, e, gap - t, root - e)  # 2^−½ < 0.7075: the power of two is 1


@njit(error_model="numpy", forceinline=True)
def pole_weights(
    value: Any,
    following: Any,
    floor: Any,
    second: Any,
    gap: Any,
    root: Any,
    scale: Any,
    shifter: Any,
) -> Any:
    """The e, eg and eg² of two entries, g = γ/(X − e): one division serves both."""
    e, u = pole_distance(value, floor, second, gap, root, scale, shifter)
    f, v = pole_distance(following, floor, second, gap, root, scale, shifter)
    quotient = gap / (u * v)
    g, h = quotient * v, quotient * u
    e1, f1 = e * g, f * h
    return e, f, e1, f1, e1 * g, f1 * h
