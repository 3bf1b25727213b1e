"""The compiled derivative of the exact constants, from the logits and what the forward pass found.

All is written in units of the second largest weight e₂: e = exp(λ(x − x₂)) for the entries below the
top, T their sum, X the root and γ = X − 1 its distance from the pole at e₂. The constants are
2λTe₂/Z² and λXe₂/Z with Z = 1 + Te₂, where the root moves by ∂X/∂eᵢ = X gᵢ²/S with gᵢ = γ/(X − eᵢ)
and S = Σ eⱼgⱼ² + e₂(Σ eⱼgⱼ)² (the implicit function theorem on Σ eⱼ/(X − eⱼ) = 1/(1 − e₂X)).

The forward pass knows x₁, x₂, γ and T of every row. So a row takes one pass that computes e and eg²,
and a cheap one that combines them, in the precision of the logits. Rows where that precision does
not suffice, next to a tie above all, are left to ``careful_gradients.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from taut._base.compiled_lanes import (
    BYTES,
    Lanes,
    lanes_of,
    load_lanes,
    load_some,
    store_lanes,
    store_some,
    sum_of,
)
from taut._base.compiled_operations import (
    fma,
    plus,
    select,
    where_below,
    where_between,
    where_equal,
    wide_vectors,
)
from taut._softmax.kernel.arithmetic import exponential_parts, limits, quick_exponential
from taut._softmax.kernel.found import FOUND_GAP, FOUND_SECOND, FOUND_TAIL, FOUND_TOP

BATCH = 2048  # entries per batch
ROWS = 64  # most rows per batch

# Scalars of the rows of a batch
QUANTITIES = 9
FLOOR, SECOND, GAP, SUM, SQUARES, E2, LEVEL, PULL, AT_TOP = range(QUANTITIES)

NEAR32, NEAR64 = 1.0 / 64.0, 0.0
TIED = 3e-8
DEPTH32, DEPTH64 = 80.0, 700.0  # entries this far below the second largest count as masked
DEEPEST = -700.0  # rows whose second largest entry is below this are left out


def fill_gradients(x: Any, found: Any, first: Any, second: Any, scale: float, out: Any, left: Any) -> int:
    """Gradients of first·λ‖M‖₁ + second·λ‖M‖₂ for the rows of ``x`` (compiled).

    The rows that were left out are marked in ``left``; also returned is how many they are.
    """
    rows, n = x.shape
    lanes = BYTES // x.itemsize
    width = (n + lanes - 1) // lanes * lanes
    batch = max(1, min(ROWS, BATCH // width))
    weights, moved = np.empty((batch, width), x.dtype), np.empty((batch, width), x.dtype)
    state = np.empty((QUANTITIES, batch))
    missing = 0.0
    for start in range(0, rows, batch):
        m = min(batch, rows - start)
        missing += prepare(x, found, start, m, scale, state, left)
        for b in range(m):
            row_sums(x, start + b, state, b, scale, weights, moved)
        combine(found, first, second, start, m, scale, state)
        for b in range(m):
            row_result(x, start + b, state, b, weights, moved, out)
    return int(missing)


@njit(error_model="numpy")
def prepare(x: Any, found: Any, start: int, rows: int, scale: float, state: Any, left: Any) -> float:
    """What the pass over the rows needs; how many rows it cannot do."""
    wide_vectors()
    eps, shifter, _, _ = limits(x.dtype.type(0))
    _, wide_shifter, _, _ = limits(0.0)
    single = eps > 1e-10
    depth, least, nearest = (DEPTH32, NEAR32, 0.0) if single else (DEPTH64, NEAR64, TIED)
    end = np.float64(np.finfo(x.dtype).max)
    missing = 0.0
    for b in range(rows):
        top, second = found[FOUND_TOP, start + b], found[FOUND_SECOND, start + b]
        gap = found[FOUND_GAP, start + b]
        z = scale * (second - top)
        fine = (z >= DEEPEST) & (z < -nearest) & (gap > least) & (abs(second) * scale * eps < 1.0)
        missing = plus(missing, select(fine, 0.0, 1.0))
        left[start + b] = select(fine, 0.0, 1.0)
        second = select(fine, second, 0.0)
        state[SECOND, b] = second
        state[FLOOR, b] = max(second - depth / scale, -end)
        state[GAP, b] = select(fine, gap, 1.0)
        state[E2, b] = quick_exponential(select(fine, z, 0.0), wide_shifter)
    return missing


@njit(forceinline=True)
def row_sums(x: Any, row: int, state: Any, b: int, scale: float, weights: Any, moved: Any) -> None:
    """e and eg² of a row, with the sums of eg and eg²."""
    kind = x.dtype.type
    zero = kind(0)
    n, lanes = x.shape[1], BYTES // x.itemsize
    shifter = kind(limits(zero)[1])
    floor, second = lanes_of(kind(state[FLOOR, b])), lanes_of(kind(state[SECOND, b]))
    gap, root = lanes_of(kind(state[GAP, b])), lanes_of(kind(1.0 + state[GAP, b]))
    total = squares = lanes_of(zero)
    whole = n - n % lanes
    for i in range(0, whole, lanes):
        value = load_lanes(zero, x, row, i)
        e, first, both = pole_weights(value, floor, second, gap, root, kind(scale), shifter)
        store_lanes(weights, b, i, e)
        store_lanes(moved, b, i, both)
        total, squares = total + first, squares + both
    if whole < n:
        value = load_some(x, row, whole, n - whole, kind(-np.inf))
        e, first, both = pole_weights(value, floor, second, gap, root, kind(scale), shifter)
        store_lanes(weights, b, whole, e)
        store_lanes(moved, b, whole, both)
        total, squares = total + first, squares + both
    state[SUM, b], state[SQUARES, b] = sum_of(total), sum_of(squares)


@njit(error_model="numpy", forceinline=True)
def pole_weights(
    value: Any, floor: Any, second: Any, gap: Any, root: Any, scale: Any, shifter: Any
) -> Any:
    """e, eg and eg² of some entries; 0 at the top entry and at those below the floor.

    γ + (1 − e) keeps its digits next to e = 1, as there the exponential is 1 + t with a known t.
    """
    d = where_between(floor, value, second, value, floor) - second
    whole, t, e = exponential_parts(scale * d, shifter)
    e = where_between(floor, value, second, e, 0.0)
    g = gap / where_equal(whole, 0.0, gap - t, root - e)
    eg = e * g
    return e, eg, eg * g


@njit(error_model="numpy")
def combine(
    found: Any, first: Any, second: Any, start: int, rows: int, scale: float, state: Any
) -> None:
    """The derivative is LEVEL·e + PULL·eg² below the top, and minus the sum of that at the top."""
    wide_vectors()
    for b in range(rows):
        e2, root = state[E2, b], 1.0 + state[GAP, b]
        tail = found[FOUND_TAIL, start + b]
        squares, total = state[SQUARES, b], state[SUM, b]
        share = 1.0 / (1.0 + tail * e2)
        one, two = scale * np.float64(first[start + b]), scale * np.float64(second[start + b])
        level = 2.0 * one * (1.0 - tail * e2) * share - two * root * e2
        level *= scale * e2 * share * share
        pull = scale * e2 * two * root * share / (squares + e2 * total * total)
        state[LEVEL, b], state[PULL, b] = level, pull
        state[AT_TOP, b] = -(level * tail + pull * squares)


@njit(forceinline=True)
def row_result(x: Any, row: int, state: Any, b: int, weights: Any, moved: Any, out: Any) -> None:
    """Write a row of the result."""
    kind = x.dtype.type
    zero = kind(0)
    n, lanes = x.shape[1], BYTES // x.itemsize
    level, pull = lanes_of(kind(state[LEVEL, b])), lanes_of(kind(state[PULL, b]))
    second, at_top = lanes_of(kind(state[SECOND, b])), lanes_of(kind(state[AT_TOP, b]))
    whole = n - n % lanes
    for i in range(0, whole, lanes):
        e, both = load_lanes(zero, weights, b, i), load_lanes(zero, moved, b, i)
        value = load_lanes(zero, x, row, i)
        found = where_below(second, value, at_top, fma(level, e, pull * both))
        store_lanes(out, row, i, found)
    if whole < n:
        e, both = load_lanes(zero, weights, b, whole), load_lanes(zero, moved, b, whole)
        value = load_some(x, row, whole, n - whole, kind(-np.inf))
        found = where_below(second, value, at_top, fma(level, e, pull * both))
        store_some(out, row, whole, n - whole, found)
