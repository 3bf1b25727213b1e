"""Lower sides of the p-norm of M(s) for every row, compiled: a direction, and what it proves.

Any direction v gives a lower bound ‖Mv‖_q/‖v‖_q, so that only the evaluation of this quotient has
to be accurate. In units of eps, its error is bounded term by term:

- A weight is off by 1 (``exponential``) and a sum of n terms ≥ 0 by n/2, so that a probability is
  off by n/2 + 3, and the mean of v − v₁ by n + 16 times the mean of |v − v₁|.
- Entries that are left out, below e^-690 of the largest, move the mean by n e^-690 times 2 max|v|.
- Both, and the rounding of v − v₁ and of its distance from the mean, are taken from every |vᵢ − m|.
- Relative errors of entries pass through a q-norm as they are; those of the powers and of their sum
  are divided by q. A power e^−d is off by 3d + 4, and d e^−d < 1/2, which makes 6n for a sum of n
  powers that is 1 at least. Powers that underflow are n e^-690 in all.

The last factor, 1 − 8(n + 32) eps, covers the relative errors of the probabilities, of the powers
(12n/q with q > 2, two sums), and of the final operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import largest, plus, select, times, wide_vectors
from taut._softmax.kernel.arithmetic import exponential, limits
from taut._softmax.kernel.passes import find_top
from taut._softmax.kernel.power_method import find_maximiser, power

DEEPEST = 690.0  # exponents below minus this are left out


def fill_lower_sides(
    x: Any, roots: Any, q: float, scale: float, still: float, directions: Any, out: Any
) -> None:
    """A proved lower bound of λ‖M‖_q of each row, and the direction that reaches it (compiled).

    ``roots`` are the 2-norms, from which the search starts; it ends at a gain below ``still``.
    """
    rows, n = x.shape
    s, work, order = np.empty(n), np.empty((2, n)), np.empty(n, np.int64)
    for row in range(rows):
        v = directions[row]
        top, second = weigh(x, row, scale, s)
        out[row] = 0.0
        if second < 0 or not s[second] > 0.0:
            v[:] = 0.0
            continue
        find_maximiser(s, top, second, roots[row], q, still, v, order, work)
        out[row] = scale * proved_quotient(s, v, top, q, work[0])


@njit(error_model="numpy")
def weigh(x: Any, row: int, scale: float, s: Any) -> tuple[int, int]:
    """Probabilities of a row; where the largest two are, or -1 where there is none."""
    wide_vectors()
    n = x.shape[1]
    _, shifter, _, ln2_low = limits(scale)
    top = np.float64(find_top(x, row))
    if not -np.inf < top < np.inf:
        return -1, -1
    floor = top - DEEPEST / scale
    total = 0.0
    for i in range(n):
        value = np.float64(x[row, i])
        e = exponential(value, top, scale, ln2_low, shifter, floor)
        e = select(value < floor, 0.0, e)
        s[i] = e
        total = plus(total, e)
    unit = 1.0 / total
    first, second = 0, -1
    for i in range(n):
        s[i] *= unit
    for i in range(1, n):
        if s[i] > s[first]:
            first, second = i, first
        elif second < 0 or s[i] > s[second]:
            second = i
    return first, second


@njit(error_model="numpy")
def proved_quotient(s: Any, v: Any, top: int, q: float, image: Any) -> float:
    """A number that is at most ‖Mv‖_q/‖v‖_q; the docstring of this module proves it."""
    wide_vectors()
    n = len(s)
    eps, shifter, _, _ = limits(q)
    reference = v[top]
    mean, spread, length = 0.0, 0.0, 0.0
    for i in range(n):
        difference = v[i] - reference
        mean = plus(mean, times(s[i], difference))
        spread = plus(spread, times(s[i], abs(difference)))
        length = largest(length, abs(v[i]))
    error = (n + 32.0) * eps
    doubt = error * spread + n * 1e-299 * length
    size = 0.0
    for i in range(n):
        difference = v[i] - reference
        away = abs(difference - mean) * (1.0 - 2.0 * eps) - eps * abs(difference) - doubt
        image[i] = s[i] * select(away > 0.0, away, 0.0)
        size = largest(size, image[i])
    if not (size > 1e-290 and 1e-290 < length < 1e290):
        return 0.0
    above, below = 0.0, 0.0
    for i in range(n):
        w, z = image[i] * (1.0 / size), abs(v[i]) * (1.0 / length)
        above = plus(above, power(select(w > 1.0, 1.0, w), q, shifter))
        below = plus(below, power(select(z > 1.0, 1.0, z), q, shifter))
    value: float = size / length * (above / below) ** (1.0 / q)
    return value * (1.0 - 8.0 * error)
