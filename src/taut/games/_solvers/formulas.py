"""Formulas that array operations and compiled loops share: how games are centred, and their errors.

Each takes numbers or arrays of them, one entry a game. Errors are bounds on what rounding does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from taut._base.rounding import EPS

SMALLEST, LARGEST = 1e-150, 1e150  # of payoffs and τ: squares neither over- nor underflow
SHARPEST = 1e-13  # of τ against payoffs: below, rounding hides the equilibrium


@register_jitable
def size_fits(size: Any) -> Any:
    """Whether payoffs of this size are in range; not if it is NaN."""
    return (size == 0) | ((size >= SMALLEST) & (size <= LARGEST))


@register_jitable
def temperature_fits(tau: Any, size: Any) -> Any:
    """Whether a temperature is in range for payoffs of this size; not if it is NaN."""
    return (tau >= SHARPEST * size) & (tau >= SMALLEST) & (tau <= LARGEST)


@register_jitable
def centre(bottom: Any, top: Any) -> Any:
    """The offset to be taken off payoffs between these numbers, and their largest size then."""
    offset = bottom + (top - bottom) / 2
    # Where the offset exceeds the spread, subtracting it is exact; elsewhere it would not help.
    offset = offset * (np.abs(offset) > top - bottom)
    return offset, np.maximum(np.abs(bottom - offset), np.abs(top - offset))


@register_jitable
def wanted_gap(tolerance: Any, tau: Any, size: Any) -> Any:
    """The gap that is wanted of a game whose centred payoffs have this size, in their units."""
    # A game whose payoffs are all the same has no scale of its own.
    return tolerance * np.minimum(tau, 2 * size + (size == 0) * tau)


@register_jitable
def error_of_logits(n: Any, m: Any, ratio: Any, eps: Any) -> Any:
    """Bound on the rounding error of a logit: product, division and normalisation together.

    A sum of k products errs by at most k eps/2 times the largest product; the rest are a few
    roundings relative to logits that are no larger than ``ratio``, largest/τ, plus a logarithm.
    """
    return eps * (max(n, m) + 16) * (ratio + 1)


@register_jitable
def gap_above(tau: Any, error: Any, x: Any, y: Any) -> Any:
    """The gap that computed divergences of both players stand for, from above.

    A perturbation of the logits by at most e moves the root of a divergence by at most e/√2
    (theorem gap); the rounding of the weights multiplies it by at most 1 + 4e.
    """
    return tau * ((x**0.5 + error) ** 2 + (y**0.5 + error) ** 2) * (1 + 16 * error)


@register_jitable
def error_of_guarantees(n: Any, m: Any, largest: Any) -> Any:
    """A product errs by half an eps a term, weights that do not sum to 1 by as much again."""
    return 2 * (max(n, m) + 16) * EPS * largest


@register_jitable
def value_sides(below: Any, above: Any, offset: Any, tau: Any, error: Any, n: Any, m: Any) -> Any:
    """What both players guarantee in the regularised game with its offset, rounded outward.

    Logits err by ``error``; entropies by a few eps of Σ p |log p| ≤ log n, over n terms.
    """
    terms = (n + 8) * np.log(n + 1) + (m + 8) * np.log(m + 1)
    total = tau * (2 * error + EPS * terms) + 4 * EPS * np.abs(offset)
    total = total + 4 * EPS * (np.abs(above) + np.abs(below))
    return below + offset - total, above + offset + total
