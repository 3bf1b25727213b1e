"""Softmax policies π(a | s) = softmax(λ Q(s, ·)): how much a change of action values matters."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from taut._base.array import Array, quietly, stop_gradient, to_host
from taut._base.bound import Bound
from taut._base.checks import exponent, finite_above_zero, rows, scale_value
from taut._base.rounding import down, enlarged
from taut._softmax import global_lipschitz, local_lipschitz


class Sensitivity(NamedTuple):
    """Constants of a policy: over all action values, and at the given ones of each state."""

    everywhere: Bound
    here: Bound


def policy_sensitivity(values: Array, *, scale: float, p: float = 2) -> Sensitivity:
    """Lipschitz constants of the policy softmax(scale · Q(s, ·)) in its action values.

    Whatever the values are, the constant is λ/2 (Nair 2025, section 5.3; theorem softmax-lp); at
    the given values it may be much smaller.

    Parameters
    ----------
    values
        Q-table of shape (..., actions); -inf marks an action that a state does not have.
    scale
        λ > 0 in units of 1/value.
    p
        Exponent of the norm.

    Examples
    --------
    >>> policy = policy_sensitivity([[1.0, 1.0], [0.0, 3.0]], scale=4.0)
    >>> policy.everywhere
    Bound(exact 2, l2, all x in R^n, n >= 2; softmax-lp)
    >>> policy.here.value.round(6)
    array([2.0e+00, 4.9e-05])
    """
    scale = _positive(scale)
    q = _table(values)
    everywhere = global_lipschitz(p, scale=scale)
    if q.shape[-1] == 1:
        everywhere = everywhere * 0.0
    return Sensitivity(everywhere, local_lipschitz(q, p, scale=scale))


@quietly
def largest_scale(sensitivity: float, values: Array | None = None, *, p: float = 2) -> float:
    """The largest λ up to which a softmax policy is no more sensitive than asked for.

    Without ``values`` the answer holds for all action values: λ = 2 · sensitivity. With a Q-table
    it holds at its states, for every scale from 0 up to the answer: the first λ at which some state
    reaches the sensitivity, rounded down, or inf if none ever does. It is found by strides that
    theorem policy-scale proves safe; for p other than 1, 2 and inf by the upper side of the
    bracket, so that the answer may be somewhat small but never too large.

    Parameters
    ----------
    sensitivity
        The Lipschitz constant that is allowed, in units of 1/value.
    values
        Q-table of shape (..., actions), or None for all values.
    p
        Exponent of the norm.

    Examples
    --------
    >>> largest_scale(2.0)
    4.0
    >>> round(largest_scale(0.5, [[0.0, 0.7, 1.0], [1.0, 2.0, 2.5]]), 6)
    1.193712
    """
    wanted = finite_above_zero(sensitivity, name="sensitivity")
    p = exponent(p)
    if values is None:
        return 2 * wanted
    q = _table(values)
    table = to_host(stop_gradient(q)).astype(np.float64).reshape(-1, q.shape[-1])
    found = [_first_crossing(row[row > -math.inf], wanted, p) for row in table]
    return min(found, default=math.inf)


def _first_crossing(q: np.ndarray, wanted: float, p: float) -> float:
    """Largest λ, from below, with λ′‖M(λ′q)‖ ≤ wanted for all λ′ ≤ λ."""
    if len(q) < 2:
        return math.inf
    scale = 2 * wanted
    if math.isinf(scale):
        return math.inf
    behind = np.minimum(q.max() - q, np.finfo(float).max)
    runners = behind[behind > 0]
    while True:
        # Nothing can come any more: λ‖M‖ ≤ 2λ(1 − s₁) for a single best action, which falls
        # once λ exceeds one over its lead.
        if len(runners) == len(q) - 1:
            rest = 2 * (scale * float(np.sum(np.exp(-scale * runners))))
            if rest < wanted and scale * float(runners.min()) > 1:
                return math.inf
        now = float(to_host(local_lipschitz(q, p, scale=scale).upper))
        room = math.log(wanted / now)
        if not room > 1e-9:
            return down(scale)
        weights = np.exp(-scale * behind)
        # max q − E_s q: exponents up to 750 and sums of so many terms err by fewer units.
        lead = enlarged(float(weights @ behind / weights.sum()), 2 * len(q) + 2000)
        before, scale = scale, _stride(scale, room, lead)
        if scale == before:  # the end of the range, or of the digits
            return scale


def _stride(scale: float, room: float, lead: float) -> float:
    """The largest λ′ with log(λ′/λ) + lead (λ′ − λ) ≤ room, from below."""
    low, high = scale, min(scale * math.exp(min(room, 700.0)), float(np.finfo(float).max))
    for _ in range(60):
        middle = low + (high - low) / 2
        fits = math.log(middle / scale) + lead * (middle - scale) <= room * (1 - 1e-12)
        low, high = (middle, high) if fits else (low, middle)
    return low


def _table(values: Array) -> Array:
    """Action values on the last axis, finite or -inf."""
    _, q = rows(values, axis=-1, name="values")
    bad = np.argwhere(~(to_host(q) < math.inf))  # also where it is NaN
    if len(bad):
        raise ValueError(
            f"values must be finite, or -inf for an action that a state does not have; the entry "
            f"at {tuple(int(k) for k in bad[0])} is {to_host(q)[tuple(bad[0])]}"
        )
    return q


def _positive(scale: float) -> float:
    """Check λ > 0."""
    scale = scale_value(scale, infinite="the policy is then not continuous")
    if not scale > 0:
        raise ValueError(f"scale must be > 0, got {scale}")
    return scale
