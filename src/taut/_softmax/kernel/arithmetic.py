"""Arithmetic of the compiled kernel: the exponential and compensated sums.

Like the operations of :mod:`taut._base.compiled_operations` that they are made of, none of these
functions may be called from a function compiled with ``fastmath``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from taut._base.compiled_lanes import is_single
from taut._base.compiled_operations import fma, times_power, where_below

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


# exp(r) = 1 + r + r²P(r) for |r| ≤ ln2/2. P was fitted at Chebyshev nodes; its relative error is
# 2^-26.5 in float32 and 2^-55.8 in float64.
_P32 = tuple(
    np.float32(c)
    for c in (
        0.5,
        0.16666576266288757,
        0.04166655242443085,
        0.00836323294788599,
        0.0013926250394433737,
    )
)
_P64 = (
    0.5000000000000001,
    0.16666666666666669,
    0.041666666666623824,
    0.008333333333330039,
    0.0013888888917367081,
    0.00019841269863171557,
    2.4801521057868204e-05,
    2.7557268276905696e-06,
    2.7620201591031547e-07,
    2.5100472505694996e-08,
)
_LOGS32 = (np.float32(LOG2E), np.float32(0.6931471824645996), np.float32(1))
_LOGS64 = (LOG2E, LN2, 1.0)


def _polynomial(r: Any) -> Any:
    """P(r) in the precision of r (compiled)."""


def _logs(r: Any) -> Any:
    """log₂e, ln 2 and 1 in the precision of r (compiled)."""


def limits(r: Any) -> Any:
    """eps, the rounding shifter, the depth that no longer counts, and ln 2 beyond its precision."""


@overload(_polynomial, inline="never")
def _polynomial_compiled(r: Any) -> Any:
    if is_single(r):

        def compiled(r: Any) -> Any:
            c = _P32
            return fma(fma(fma(fma(c[4], r, c[3]), r, c[2]), r, c[1]), r, c[0])

    else:

        def compiled(r: Any) -> Any:
            c = _P64
            p = fma(fma(fma(fma(c[9], r, c[8]), r, c[7]), r, c[6]), r, c[5])
            return fma(fma(fma(fma(fma(p, r, c[4]), r, c[3]), r, c[2]), r, c[1]), r, c[0])

    return compiled


@overload(_logs)
def _logs_compiled(r: Any) -> Any:
    logs = _LOGS32 if is_single(r) else _LOGS64

    def compiled(r: Any) -> Any:
        return logs

    return compiled


@overload(limits)
def _limits_compiled(r: Any) -> Any:
    if is_single(r):
        found = (2.0**-23, 1.5 * 2.0**23, 40.0, -1.904654299957768e-09)
    else:
        found = (2.0**-52, 1.5 * 2.0**52, 80.0, 2.3190468138462996e-17)

    def compiled(r: Any) -> Any:
        return found

    return compiled


@njit(forceinline=True)
def exponential(x: Any, top: Any, scale: Any, ln2_low: Any, shifter: Any, floor: Any) -> Any:
    """exp(λ(max(x, floor) − top))·2^−K to about 0.8 units in the last place.

    Not of NaN: the power of two is added to the bits, and those of NaN may become any number.

    The rounding errors of x − top and of λd are recovered exactly: without them a tail at depth z
    would be off by |z| units, and all of a constant tail in the same direction. ``shifter`` carries
    K, ``ln2_low`` the rest of ln 2 and of λ.
    """
    log2e, ln2, one = _logs(x)
    x = where_below(x, floor, floor, x)
    d = x - top
    v = d - x
    d_low = (x - (d - v)) - (top + v)
    z = scale * d
    z_low = fma(scale, d_low, fma(scale, d, -z))
    k = fma(z, log2e, shifter)
    whole = k - shifter
    r = fma(-whole, ln2, z) + fma(-whole, ln2_low, z_low)
    return times_power(one + fma(r * r, _polynomial(r), r), k)


@njit(forceinline=True)
def quick_exponential(d: Any, shifter: Any) -> Any:
    """exp(d) for d ≤ 0 with a normal result, to about |d| + 2 units in the last place."""
    log2e, ln2, one = _logs(d)
    k = fma(d, log2e, shifter)
    r = fma(-(k - shifter), ln2, d)
    return times_power(one + fma(r * r, _polynomial(r), r), k)


@njit(forceinline=True)
def exponential_parts(d: Any, shifter: Any) -> Any:
    """The same as exp(d) = (1 + t)·2^k: k, t and the product, where |t| < 0.42.

    Beside ``quick_exponential`` rather than under it: loops with powers need the product alone.
    """
    log2e, ln2, one = _logs(d)
    k = fma(d, log2e, shifter)
    whole = k - shifter
    r = fma(-whole, ln2, d)
    t = fma(r * r, _polynomial(r), r)
    return whole, t, times_power(one + t, k)


@njit(forceinline=True)
def two_sum(a: Any, b: Any) -> Any:
    """A + b and what rounding took from it (Knuth)."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)
