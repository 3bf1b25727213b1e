"""Passes of the compiled kernel over one row, vectorised along the row in the input's precision.

The buffer of a batch is seen as (row, entry), (row, block, entry) or (row, block, half, entry):
inner loops then run over a whole axis from 0, and LLVM need not consider negative indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import largest, plus, select, times, wide_vectors
from taut._softmax.kernel.arithmetic import exponential


@njit(forceinline=True)
def find_top(x: Any, row: int) -> Any:
    """The largest entry of a row."""
    wide_vectors()
    top = x.dtype.type(-np.inf)
    for i in range(x.shape[1]):
        top = largest(top, x[row, i])
    return top


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
def pole_sums(buffer: Any, b: int, block: int, x: Any, gap: Any) -> Any:
    """Sums of E²ρ and of Eρ^j, j = 2, 3, 4, over a block, where ρ = gap/(x − E) ≤ 1.

    One division serves two entries. The first sum has E² rather than E because ΣE is known better.
    """
    wide_vectors()
    s0 = s1 = s2 = s3 = buffer.dtype.type(0)
    for i in range(buffer.shape[3]):
        e, f = buffer[b, block, 0, i], buffer[b, block, 1, i]
        u, v = x - e, x - f
        quotient = gap / (u * v)
        r, t = quotient * v, quotient * u
        e1, f1 = e * r, f * t
        s0 = plus(s0, plus(times(e1, e), times(f1, f)))
        e1, f1 = e1 * r, f1 * t
        s1 = plus(s1, plus(e1, f1))
        e1, f1 = e1 * r, f1 * t
        s2 = plus(s2, plus(e1, f1))
        s3 = plus(s3, plus(times(e1, r), times(f1, t)))
    return s0, s1, s2, s3
