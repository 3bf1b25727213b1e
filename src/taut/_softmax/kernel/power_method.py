"""The nonlinear power method for the p-norm of M(s), compiled; q = max(p, p′) > 2.

Its steps v ← ψ_q′(M ψ_q(M v)), ψ_q(w) = sign(w)|w|^(q−1), never lower the quotient ‖Mv‖_q/‖v‖_q.
The best of a few starts is taken after some steps, and climbed from until little is gained.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_operations import (
    binary_exponent,
    largest,
    plus,
    select,
    significand,
    times,
    wide_vectors,
)
from taut._softmax.kernel.arithmetic import LN2, limits, quick_exponential

TRIAL, STEPS = 3, 30
STILL = 1e-9  # a relative gain of the quotient in one step that is not worth another
HOPELESS = 0.02  # starts that are this far below the best after a step are given up
BUCKETS = 64  # in which entries are ordered, roughly
DEPTH = 16.0  # octaves below the largest: deeper entries share the last bucket


@njit(forceinline=True)
def power(x: float, exponent: float, shifter: float) -> float:
    """x^exponent for 0 ≤ x ≤ 1 and exponent > 0; 0 where it, or x, is next to underflow.

    With d = −log of the result, the relative error is below (3d + 4) eps: the series of the
    logarithm is cut off below eps/4, its rounding is a share of 2 eps, that of the exponential
    d + 2 eps.
    """
    visible = x > 1e-300
    safe = select(visible, x, 1.0)
    m = significand(safe)
    t = (m - 1.0) / (m + 1.0)
    u = t * t
    tail = 1 / 9 + u * (1 / 11 + u * (1 / 13 + u * (1 / 15 + u * (1 / 17))))
    series = u * (1 / 3 + u * (1 / 5 + u * (1 / 7 + u * tail)))
    depth = exponent * (binary_exponent(safe) * LN2 + 2.0 * (t + t * series))
    visible &= depth > -700.0
    return select(visible, quick_exponential(select(visible, depth, -1.0), shifter), 0.0)


@njit(error_model="numpy")
def half_step(s: Any, v: Any, top: int, exponent: float, out: Any) -> tuple[float, float]:
    """Write sign(w)|w|^exponent with w = Mv in units of its largest entry.

    Returns that entry, and the sum of the products of |w| with what was written.
    """
    wide_vectors()
    n = len(s)
    _, shifter, _, _ = limits(exponent)
    reference = v[top]  # as in ``covariance_product``
    mean = 0.0
    for i in range(n):
        mean = plus(mean, times(s[i], v[i] - reference))
    size = 0.0
    for i in range(n):
        w = s[i] * ((v[i] - reference) - mean)
        out[i] = w
        size = largest(size, abs(w))
    if not 1e-290 < size < np.inf:  # its reciprocal would overflow
        return 0.0, 0.0
    unit = 1.0 / size
    total = 0.0
    for i in range(n):
        w = abs(out[i]) * unit
        powered = power(select(w > 1.0, 1.0, w), exponent, shifter)
        total = plus(total, times(w, powered))
        out[i] = math.copysign(powered, out[i])
    return size, total


@njit(error_model="numpy")
def climb(
    s: Any, v: Any, u: Any, top: int, q: float, steps: int, still: float, record: float
) -> float:
    """Steps from v; the logarithm of ‖Mv‖_q/‖v‖_q before the last half of one.

    The norms are ⟨w, ψ_q(w)⟩^(1/q), so that they cost nothing. Far below the record it ends early.
    """
    reached, length = -np.inf, 0.0
    for step in range(steps + 1):
        size, total = half_step(s, v, top, q - 1.0, u)
        if size == 0.0:
            return -np.inf
        if step > 0:
            before, reached = reached, math.log(size) + (math.log(total) - length) / q
            ended = step == steps or (reached - before < still and step > 1)
            if ended or reached < record - HOPELESS:
                return reached
        _, total = half_step(s, u, top, 1.0 / (q - 1.0), v)
        if not total > 0.0:
            return -np.inf
        length = math.log(total)
    return reached


@njit(error_model="numpy")
def rough_order(s: Any, top: int, depth: Any, order: Any) -> None:
    """Indices of the entries, the largest first and the others about in descending order."""
    n = len(s)
    deepest = 0.0
    for i in range(n):
        ratio = s[top] / max(s[i], 1e-290)
        m = significand(ratio)
        depth[i] = min(max(binary_exponent(ratio) + 2.9 * (m - 1.0) / (m + 1.0), 0.0), DEPTH)
        deepest = largest(deepest, depth[i])
    scale = (BUCKETS - 0.5) / math.sqrt(max(deepest, 1e-12))
    for i in range(n):  # finer at the top, where there may be many
        depth[i] = math.sqrt(depth[i]) * scale
    ends = np.zeros(BUCKETS + 1, np.int64)
    for i in range(n):
        ends[int(depth[i]) + 1] += 1
    for k in range(BUCKETS):
        ends[k + 1] += ends[k]
    for i in range(n):
        k = int(depth[i])
        order[ends[k]] = i
        ends[k] += 1
    for j in range(n):  # the largest is in the first bucket
        if order[j] == top:
            order[j], order[0] = order[0], top
            break


@njit(error_model="numpy")
def best_split(s: Any, order: Any, q: float, raised: Any) -> int:
    """How many of the first entries in ``order`` to set against the rest for the largest quotient.

    With v = 1 on k entries that hold the probability a and −b on the others, where
    b = (k/(n−k))^{1/(q−1)}, the q-th power of the quotient is
    (1+b)^q (A(1−a)^q + Ba^q)/(k + (n−k)b^q), A and B the sums of sᵢ^q on either side (Rolewicz: on
    flat rows the maximiser is of this kind). A ladder of k is tried.
    """
    n = len(s)
    _, shifter, _, _ = limits(q)
    unit = 1.0 / s[order[0]]
    powers = 0.0
    for i in range(n):
        raised[i] = power(min(s[i] * unit, 1.0), q, shifter)
        powers = plus(powers, raised[i])
    best, found, following = -np.inf, 1, 1
    a, inside = 0.0, 0.0
    for k in range(1, n):
        i = order[k - 1]
        a += s[i]
        inside += raised[i]
        if k < following:
            continue
        following = max(k + 1, int(1.3 * k))
        b = (k / (n - k)) ** (1.0 / (q - 1.0))
        left = math.log(inside) + q * math.log(max(1.0 - a, 1e-300))
        right = math.log(max(powers - inside, 1e-300)) + q * math.log(a)
        score = q * math.log1p(b) - math.log(k + (n - k) * b**q) + max(left, right)
        if score > best:
            best, found = score, k
    return found


@njit(error_model="numpy")
def set_split(order: Any, k: int, q: float, v: Any) -> None:
    """The two-valued v with k entries on one side."""
    n = len(order)
    b = (k / (n - k)) ** (1.0 / (q - 1.0))
    for j in range(n):
        v[order[j]] = 1.0 if j < k else -b


@njit(error_model="numpy")
def set_eigenvector(s: Any, top: int, second: int, root: float, v: Any) -> None:
    """vᵢ = sᵢ/(sᵢ − root), which is the eigenvector if the root is the 2-norm."""
    least = 1e-12 * s[top]
    for i in range(len(s)):
        v[i] = s[i] / min(s[i] - root, -least)
    v[top] = s[top] / max(s[top] - root, least)
    if not root > s[second] + least:  # a tie
        v[:] = 0.0
        v[top], v[second] = 1.0, -1.0


@njit(error_model="numpy")
def find_maximiser(
    s: Any,
    top: int,
    second: int,
    root: float,
    q: float,
    still: float,
    best_v: Any,
    order: Any,
    work: Any,
) -> None:
    """The best start after one step, then many steps from it: a v with a large quotient."""
    n = len(s)
    v, u = work[0], work[1]
    rough_order(s, top, u, order)
    split = best_split(s, order, q, u)
    best = -np.inf
    for start in range(5):
        if start == 0:
            set_eigenvector(s, top, second, root, v)
        elif start == 1:
            set_split(order, 1, q, v)
        else:
            factor = 1.0 if start == 2 else (0.6 if start == 3 else 1.6)
            k = min(max(round(factor * split), 1), n - 1)
            if k == 1:
                continue
            set_split(order, k, q, v)
        reached = climb(s, v, u, top, q, TRIAL, still, best)
        if reached > best or start == 0:
            best = reached
            best_v[:] = v
    climb(s, best_v, u, top, q, STEPS, still, -np.inf)
