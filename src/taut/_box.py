"""How far the softmax and its constants go in a box ‖δ‖_∞ ≤ r of logits (theorem radius)."""

from __future__ import annotations

import math
from typing import NamedTuple

from taut._array import Array, Namespace, eps_of, namespace, positions, quietly, widest
from taut._checks import check_logits, restore_axis, rows, scale_value
from taut._exact import exact_constants
from taut._norms import induced_norm, positive_scale
from taut._rounding import round_down, round_up
from taut._secular import Spectrum, analyse
from taut._sides import Sides, at_most, exact_sides

__all__ = ["Interval", "probability_intervals"]


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
    radius = check_radius(radius)
    scale = scale_value(scale, infinite="every probability jumps to 0 or 1")
    xp, x = rows(x, axis=axis, name="x")
    x, scale = positive_scale(x, scale)
    check_logits(xp, xp.max(x, axis=-1), name="x")
    spectrum = analyse(x, scale)
    weights = xp.where(spectrum.is_top, xp.ones_like(spectrum.weights), spectrum.weights)
    weights = xp.where(x == -math.inf, xp.zeros_like(weights), weights)
    rest = xp.where(spectrum.is_top, spectrum.tail, 1 + spectrum.tail - spectrum.weights)
    spread = 2 * scale * radius
    # Relative error of a probability: that of its exponent, of the sums, and of the factor e^{2λr}.
    present = weights > 0
    depth = -xp.log(xp.where(present, weights, xp.ones_like(weights)))
    relative = _relative(x, depth, spread)
    shrink = math.exp(-spread)
    low = weights * shrink / _nonzero(xp, rest + weights * shrink)
    high = weights / _nonzero(xp, rest * shrink + weights)
    lower = round_down(low, relative, _absolute(x))
    upper = at_most(round_up(high, relative, _absolute(x)), 1.0)
    # An entry that underflowed may still be positive; one that is masked may not.
    upper = xp.where(x == -math.inf, xp.zeros_like(upper), upper)
    ends = (xp.astype(end, x.dtype, copy=False) for end in (lower, upper))
    return Interval(*(restore_axis(end, axis) for end in ends))


def box_norm(x: Array, p: float, q: float, radius: float, scale: float) -> Sides:
    """Largest λ‖M‖_p over the box of half-width ``radius`` around every row."""
    radius = check_radius(radius)
    if p != q:
        raise ValueError(f"a radius needs the same norm on both sides, not l{p:g}->l{q:g}")
    xp = namespace(x)
    check_logits(xp, xp.max(x, axis=-1), name="x")
    spectrum = analyse(x, scale)
    spread = 2 * scale * radius
    one = _largest_one(xp, x, spectrum, spread, scale)
    if p in (1, math.inf):
        return one
    two = _upper_two(xp, x, spectrum, spread, scale)
    share = abs(1 - 2 / p)
    upper = at_most(
        round_up(one.upper**share * xp.minimum(two, one.upper) ** (1 - share)), scale / 2
    )
    lower = xp.zeros_like(upper)
    for point in (x, *_corners(xp, x, spectrum, radius, scale)):
        here = induced_norm(point, p, p, scale, exact_constants(point, scale))
        lower = xp.maximum(lower, here.lower)
    theorem = ("radius", "local-2-bracket") if p == 2 else ("radius", "local-p-bracket")
    return Sides(xp.minimum(lower, upper), upper, None, "bracket", theorem)


def _largest_one(xp: Namespace, x: Array, spectrum: Spectrum, spread: float, scale: float) -> Sides:
    """λ·2u(1−u) at the odds nearest to 1 that the largest probability can reach.

    No other entry can come nearer: if s₁ ≤ ½ they start below it, and if s₁ > ½ their odds against
    are at least its odds for.
    """
    tail = spectrum.tail
    empty = tail == 0
    safe = xp.where(empty, xp.ones_like(tail), tail)
    distance = xp.abs(xp.log(safe)) - spread
    odds = xp.exp(-xp.maximum(distance, xp.zeros_like(distance)))
    value = scale * xp.where(empty, xp.zeros_like(odds), 2 * odds / ((1 + odds) * (1 + odds)))
    relative = _relative(x, xp.abs(xp.log(safe)), spread)
    value, relative = (
        xp.squeeze(xp.astype(part, x.dtype, copy=False), axis=-1) for part in (value, relative)
    )
    return exact_sides(value, relative, max(1.0, scale) * _absolute(x), scale / 2, ("radius",))


def _upper_two(xp: Namespace, x: Array, spectrum: Spectrum, spread: float, scale: float) -> Array:
    """Upper bound on λ‖M‖₂ in the box: the largest u(1 − u + v) (theorem local-2-bracket).

    u runs over the range of the largest probability and v, the second largest, is at most u, 1 − u
    and the top of its own range. On each piece the function is monotone or concave, so the ends,
    the breaks and the one stationary point suffice. Log-odds keep 1 − u free of cancellation.
    """
    e2 = spectrum.runner_up
    rest = 1 + spectrum.tail - e2
    growth = math.exp(-spread)
    cap = e2 / (e2 + rest * growth)
    cap_complement = rest * growth / (e2 + rest * growth)
    safe = xp.where(spectrum.tail == 0, xp.ones_like(spectrum.tail), spectrum.tail)
    middle = -xp.log(safe)
    low, high = middle - spread, middle + spread
    tiny = 2.0**-126 if eps_of(cap) > 1e-10 else 2.0**-1022
    cap_odds = xp.log(xp.maximum(cap, xp.full_like(cap, tiny))) - xp.log(cap_complement)
    stationary = xp.log1p(cap) - xp.log(cap_complement)
    best = xp.zeros_like(cap)
    for odds in (low, high, xp.zeros_like(cap), cap_odds, -cap_odds, stationary):
        t = xp.minimum(xp.maximum(odds, low), high)
        u, complement = 1 / (1 + xp.exp(-t)), 1 / (1 + xp.exp(t))
        second = xp.minimum(cap, xp.minimum(u, complement))
        best = xp.maximum(best, u * (complement + second))
    best = xp.where(spectrum.tail == 0, xp.zeros_like(best), best)
    relative = 2 * _relative(x, xp.abs(middle), spread)
    upper = round_up(scale * best, relative, max(1.0, scale) * _absolute(x))
    return xp.squeeze(xp.astype(upper, x.dtype, copy=False), axis=-1)


def _corners(
    xp: Namespace, x: Array, spectrum: Spectrum, radius: float, scale: float
) -> list[Array]:
    """Points of the box where the constant tends to be large, for the lower side."""
    e = spectrum.weights
    second = positions(e) == xp.expand_dims(xp.argmax(e, axis=-1), axis=-1)
    second = second & ~spectrum.is_top
    top_logit = xp.max(x, axis=-1, keepdims=True)
    top_logit = xp.where(top_logit == -math.inf, xp.zeros_like(top_logit), top_logit)
    hidden = xp.where(spectrum.is_top, xp.full_like(x, -math.inf), x)
    second_logit = xp.max(hidden, axis=-1, keepdims=True)
    # The two largest as equal as they get, everything else down.
    meet = xp.maximum(top_logit - radius, xp.minimum(second_logit + radius, top_logit + radius))
    pair = xp.where(spectrum.is_top, meet, xp.where(second, x + radius, x - radius))
    # The top probability as near to ½ as it gets.
    safe = xp.where(spectrum.tail == 0, xp.ones_like(spectrum.tail), spectrum.tail)
    pull = xp.astype(xp.log(safe), x.dtype, copy=False) / (2 * max(scale, 1e-30))
    pull = xp.minimum(xp.maximum(pull, xp.full_like(pull, -radius)), xp.full_like(pull, radius))
    balanced = xp.where(spectrum.is_top, x + pull, x - pull)
    return [pair, balanced]


def _relative(x: Array, depth: Array, spread: float) -> Array:
    """Relative error of a probability or of odds: exponent, sums, and the factor e^{2λr}."""
    wide = eps_of(widest(x))
    return (16 + math.log2(x.shape[-1]) + depth + spread) * wide + 2 * eps_of(x)


def _absolute(x: Array) -> float:
    """What underflow may take away, in units of the smallest normal number."""
    return float(x.shape[-1]) * (2.0**-126 if eps_of(x) > 1e-10 else 2.0**-1022)


def _nonzero(xp: Namespace, total: Array) -> Array:
    """The denominator, 1 where a row is masked altogether."""
    return xp.where(total == 0, xp.ones_like(total), total)


def check_radius(radius: float) -> float:
    """Check the half-width of a box of logits."""
    try:
        value = float(radius)
    except (TypeError, ValueError):
        raise TypeError(f"radius must be a number >= 0, got {radius!r}") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"radius must be a finite number >= 0, got {radius!r}")
    return value
