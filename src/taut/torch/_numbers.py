"""Arithmetic on arrays of numbers ≥ 0, rounded up: one number for each sample of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def number(value: Any) -> Numbers:
    """An array of float64; what is no number (a sum of infinities, say) bounds nothing."""
    array = np.asarray(value, dtype=np.float64)
    return np.where(np.isnan(array), np.inf, array)


def up(value: Any) -> Numbers:
    """The next number above; 0 stays 0."""
    array = number(value)
    return np.where(array == 0, 0.0, np.nextafter(array, np.inf))


def times(*factors: Any) -> Numbers:
    """Product, rounded up. What is multiplied by 0 is 0, also if it is infinite."""
    total = number(1.0)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for factor in map(number, factors):
            # A product that underflows is not 0: the next number above it is positive.
            rounded = np.nextafter(number(total * factor), np.inf)
            exact = (total == 1) | (factor == 1)
            zero = (total == 0) | (factor == 0)
            total = np.where(zero, 0.0, np.where(exact, total * factor, rounded))
    return total


def plus(*terms: Any) -> Numbers:
    """Sum, rounded up."""
    total = number(0.0)
    with np.errstate(over="ignore"):
        for term in map(number, terms):
            total = np.where(total == 0, term, np.where(term == 0, total, up(total + term)))
    return total


def root(value: Any) -> Numbers:
    """Square root, rounded up."""
    return up(np.sqrt(number(value)))


def hypotenuse(*terms: Any) -> Numbers:
    """Root of the sum of squares, rounded up."""
    total = number(0.0)
    with np.errstate(over="ignore"):
        for term in map(number, terms):
            # hypot errs by at most one unit in the last place
            total = up(up(np.hypot(total, term)))
    return total


def over(value: Any, divisor: Any) -> Numbers:
    """Quotient, rounded up; infinite for divisors that are 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return up(number(value) / np.asarray(divisor, dtype=np.float64))
