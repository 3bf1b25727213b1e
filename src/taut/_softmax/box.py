"""How far the softmax and its constants go in a box ‖δ‖_∞ ≤ r of logits (theorem radius)."""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._base.array import (
    Array,
    Namespace,
    eps_of,
    namespace,
    positions,
    quietly,
    wide_eps,
    widest,
)
from taut._base.array_rounding import product, round_down, round_up
from taut._base.bound import Rounding
from taut._base.checks import check_logits, finite_at_least_zero, restore_axis, rows, scale_value
from taut._base.reductions import row_max
from taut._softmax.any_p import interpolate
from taut._softmax.exact import exact_constants
from taut._softmax.norms import induced_norm, positive_scale
from taut._softmax.secular import Spectrum, analyse, deepest
from taut._softmax.sides import Sides, at_most

__all__ = ["Interval", "probability_intervals"]

_FINAL = 16  # units of the last operations
_TINY_SCALE = 2.0**-120  # a normal number in every precision


class Interval(NamedTuple):
    """Lower and upper ends, rounded outward."""

    lower: Array
    upper: Array


@quietly
def probability_intervals(
    x: Array, radius: float, *, axis: int = -1, scale: float = 1.0
) -> Interval:
    """Exact range of every probability when no logit moves by more than ``radius``.

    The log-odds of sᵢ move by at most 2λ·radius, and both ends are reached: by moving one logit one
    way and all others the other way (theorem radius).

    >>> low, high = probability_intervals([0.0, 0.0], 0.5)
    >>> low.round(6), high.round(6)
    (array([0.268941, 0.268941]), array([0.731059, 0.731059]))
    """
    radius = finite_at_least_zero(radius, name="radius")
    scale = scale_value(scale, infinite="every probability jumps to 0 or 1")
    xp, x = rows(x, axis=axis, name="x")
    x, scale = positive_scale(x, scale)
    check_logits(xp, row_max(x), name="x")
    spectrum, box = analyse(x, scale), _box(x, radius, scale)
    masked = x == -math.inf
    # Log-odds of every entry: of the top one 1 against the tail, of another its weight against all
    # the rest, which is at least 1. Logarithms, because a wide box brings back what underflows.
    odds = xp.where(
        spectrum.is_top,
        -_log_tail(xp, spectrum),
        spectrum.exponents - xp.log(1 + (spectrum.tail - spectrum.weights)),
    )
    odds = xp.where(masked, xp.full_like(odds, -math.inf), odds)
    half, nearest = _half_gaps(xp, x, spectrum.is_top)
    half = xp.where(spectrum.is_top, -nearest, half)
    error = _odds_error(x, xp.where(masked, xp.zeros_like(odds), xp.abs(odds)), box.spread)
    low, high = (_moved(xp, odds, half, box, error=error, by=k, unsure=k) for k in (-1, 1))
    lower = round_down(_sigmoid(xp, low), _FINAL * eps_of(x), _absolute(x))
    upper = round_up(_sigmoid(xp, high), _FINAL * eps_of(x), _absolute(x))
    upper = at_most(upper, 1.0)
    upper = xp.where(masked, xp.zeros_like(upper), upper)
    ends = (xp.astype(end, x.dtype, copy=False) for end in (lower, upper))
    return Interval(*(restore_axis(end, axis) for end in ends))


class Box(NamedTuple):
    """All logits within ``radius`` of a point, at a scale ≥ 0."""

    radius: float
    spread: float  # how far log-odds move, 2λ·radius
    scale: float


def _box(x: Array, radius: float, scale: float) -> Box:
    """The box, its numbers not beyond what the computation in the precision of ``x`` can hold.

    No two logits are farther apart than twice the largest number, and no log-odds than twice the
    deepest exponent: a larger box reaches no more.
    """
    wide = widest(x)
    largest = float(namespace(wide).finfo(wide.dtype).max)
    return Box(min(radius, largest), min(2 * (scale * radius), 2 * deepest(wide)), scale)


def _half_gaps(xp: Namespace, x: Array, is_top: Array) -> tuple[Array, Array]:
    """(x − x₁)/2 in the logits' own units and the largest of those below the top entry.

    Halves, because the difference of two huge logits overflows. 0 where there is none.
    """
    x = widest(x)
    top = row_max(x, keepdims=True)
    masked = x == -math.inf
    zeros, hidden = xp.zeros_like(x), xp.full_like(x, -math.inf)
    half = xp.where(masked, zeros, x / 2 - top / 2)
    nearest = row_max(xp.where(is_top | masked, hidden, half), keepdims=True)
    return half, xp.where(nearest == -math.inf, xp.zeros_like(nearest), nearest)


def _moved(
    xp: Namespace, odds: Array, half: Array, box: Box, *, error: Array, by: int, unsure: int
) -> Array:
    """Log-odds moved by the box (``by`` is ±1) and by their error (±1 or 0); infinite ones stay.

    Where exponents overflow the log-odds are 2λ times half the gap of the logits, up to far less
    than its rounding error: there the box is added to the gap before the scale comes in.
    """
    rounding = 8 * wide_eps(odds) * xp.abs(half) + 8 * wide_eps(odds) * box.radius
    far = (half + (by * box.radius + unsure * rounding)) * box.scale * 2
    near = odds + by * box.spread + unsure * error
    moved = xp.where(xp.abs(odds) < deepest(odds) / 2, near, far)
    return xp.where(xp.isinf(odds), odds, moved)


def _log_tail(xp: Namespace, spectrum: Spectrum) -> Array:
    """Log T without underflow; -inf where there is no other entry than the top one."""
    nearest = row_max(spectrum.exponents, keepdims=True)
    empty = nearest == -math.inf
    safe = xp.where(empty, xp.zeros_like(nearest), nearest)
    total = xp.sum(xp.exp(spectrum.exponents - safe), axis=-1, keepdims=True)
    logs = safe + xp.log(xp.where(empty, xp.ones_like(total), total))
    return xp.where(empty, nearest, logs)


def _sigmoid(xp: Namespace, t: Array) -> Array:
    """1/(1 + e^{−t}), accurate in both tails."""
    small = xp.exp(-xp.abs(t))
    return xp.where(t >= 0, 1 / (1 + small), small / (1 + small))


def box_norm(x: Array, p: float, q: float, radius: float, scale: float) -> Sides:
    """Largest λ‖M‖_p over the box of half-width ``radius`` around every row."""
    if p != q:
        raise ValueError(f"a radius needs the same norm on both sides, not l{p:g}->l{q:g}")
    if radius == 0:
        return induced_norm(x, p, q, scale, exact_constants(x, scale))
    xp = namespace(x)
    check_logits(xp, row_max(x), name="x")
    spectrum, box = analyse(x, scale), _box(x, radius, scale)
    one = _largest_one(xp, x, spectrum, box)
    if p in (1, math.inf):
        return one
    two = _upper_two(xp, x, spectrum, box)
    mean = interpolate(xp, one.upper, xp.minimum(two, one.upper), p)
    upper = at_most(mean, product(scale, 0.5, up=True))
    lower = xp.zeros_like(upper)
    for point in (x, *_corners(xp, x, spectrum, box)):
        here = induced_norm(point, p, p, scale, exact_constants(point, scale))
        lower = xp.maximum(lower, here.lower)
    theorem = ("radius", "local-2-bracket") if p == 2 else ("radius", "local-p-bracket")
    # The allowance in the lower side of other norms than l2 is an estimate.
    rounding: Rounding = "proved" if p == 2 else "estimated"
    return Sides(xp.minimum(lower, upper), upper, None, "bracket", theorem, rounding)


def _largest_one(xp: Namespace, x: Array, spectrum: Spectrum, box: Box) -> Sides:
    """λ·2u(1−u) at the odds nearest to 1 that the largest probability can reach.

    No other entry can come nearer: if s₁ ≤ ½ they start below it, and if s₁ > ½ their odds against
    are at least its odds for.
    """
    logs = _log_tail(xp, spectrum)
    empty = logs == -math.inf
    size = xp.where(empty, xp.zeros_like(logs), xp.abs(logs))
    half = -_half_gaps(xp, x, spectrum.is_top)[1]
    error = _odds_error(x, size, box.spread)
    scale = box.scale

    def at(unsure: int) -> Array:
        distance = _moved(xp, size, half, box, error=error, by=-1, unsure=unsure)
        odds = xp.exp(-xp.maximum(distance, xp.zeros_like(distance)))
        value = scale * xp.where(empty, xp.zeros_like(odds), 2 * odds / ((1 + odds) * (1 + odds)))
        return xp.squeeze(xp.astype(value, x.dtype, copy=False), axis=-1)

    relative, absolute = _FINAL * eps_of(x), max(1.0, scale) * _absolute(x)
    ceiling = product(scale, 0.5, up=True)
    lower = round_down(at(1), relative, absolute)
    upper = at_most(round_up(at(-1), relative, absolute), ceiling)
    return Sides(lower, upper, at_most(at(0), ceiling), "exact", ("radius",), rounding="proved")


def _upper_two(xp: Namespace, x: Array, spectrum: Spectrum, box: Box) -> Array:
    """Upper bound on λ‖M‖₂ in the box: the largest u(1 − u + v) (theorem local-2-bracket).

    u runs over the range of the largest probability and v, the second largest, is at most u, 1 − u
    and the top of its own range. On each piece the function is monotone or concave, so the ends,
    the breaks and the one stationary point suffice. Log-odds keep 1 − u free of cancellation.
    """
    spread, scale = box.spread, box.scale
    logs = _log_tail(xp, spectrum)
    empty = logs == -math.inf
    middle = -xp.where(empty, xp.zeros_like(logs), logs)
    nearest = row_max(spectrum.exponents, keepdims=True)
    nearest = xp.where(empty, xp.zeros_like(logs), nearest)
    error = _odds_error(x, xp.maximum(xp.abs(middle), xp.abs(nearest)), spread)
    cap_odds = nearest - xp.log(1 + (spectrum.tail - spectrum.runner_up)) + spread + error
    cap, cap_complement = _sigmoid(xp, cap_odds), _sigmoid(xp, -cap_odds)
    low, high = middle - spread - error, middle + spread + error
    tiny = 2.0**-126 if eps_of(cap) > 1e-10 else 2.0**-1022
    stationary = xp.log1p(cap) - xp.log(xp.maximum(cap_complement, xp.full_like(cap, tiny)))
    best = xp.zeros_like(cap)
    for odds in (low, high, xp.zeros_like(cap), cap_odds, -cap_odds, stationary):
        t = xp.minimum(xp.maximum(odds, low), high)
        u, complement = _sigmoid(xp, t), _sigmoid(xp, -t)
        second = xp.minimum(cap, xp.minimum(u, complement))
        best = xp.maximum(best, u * (complement + second))
    best = xp.where(empty, xp.zeros_like(best), best)
    best = xp.squeeze(xp.astype(scale * best, x.dtype, copy=False), axis=-1)
    return round_up(best, _FINAL * eps_of(x), max(1.0, scale) * _absolute(x))


def _corners(xp: Namespace, x: Array, spectrum: Spectrum, box: Box) -> list[Array]:
    """Points of the box where the constant tends to be large, for the lower side."""
    e = spectrum.weights
    second = positions(e) == xp.expand_dims(xp.argmax(e, axis=-1), axis=-1)
    second = second & ~spectrum.is_top
    hide = x == -math.inf
    x = xp.where(hide, xp.zeros_like(x), x)
    # Moves stop short of the radius by what adding them to x may round.
    limit = xp.full_like(x, float(xp.finfo(x.dtype).max))
    room = xp.minimum(box.radius - 2 * eps_of(x) * xp.abs(x), limit)
    room = round_down(room, 8 * eps_of(x))
    up, down = xp.minimum(x + room, limit), xp.maximum(x - room, -limit)
    # The two largest as equal as they get, everything else down.
    meet = row_max(xp.where(second, up, -limit), keepdims=True)
    pair = xp.where(second, up, down)
    pair = xp.where(spectrum.is_top, xp.minimum(xp.maximum(meet, down), up), pair)
    # The top probability as near to ½ as it gets.
    logs = _log_tail(xp, spectrum)
    pull = xp.where(logs == -math.inf, xp.zeros_like(logs), logs) / 2 / max(box.scale, _TINY_SCALE)
    pull = xp.astype(pull, x.dtype, copy=False)
    balanced = xp.where(spectrum.is_top, x + pull, x - pull)
    balanced = xp.minimum(xp.maximum(balanced, down), up)
    hidden = xp.full_like(x, -math.inf)
    return [xp.where(hide, hidden, point) for point in (pair, balanced)]


def _odds_error(x: Array, depth: Array, spread: float) -> Array:
    """Error of log-odds: differences, products, logarithms and sums cost a unit of their size."""
    return (16 + math.log2(x.shape[-1]) + 3 * depth + 3 * spread) * wide_eps(x)


def _absolute(x: Array) -> float:
    """What underflow may take away, in units of the smallest normal number."""
    return float(x.shape[-1]) * (2.0**-126 if eps_of(x) > 1e-10 else 2.0**-1022)
