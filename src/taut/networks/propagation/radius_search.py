"""The largest radius at which propagated bounds keep a margin positive."""

from __future__ import annotations

import math
from collections.abc import Callable

Margin = Callable[[float], float]


def largest_radius(
    margin: Margin, at_input: float, guess: float, steps: int, tolerance: float
) -> float:
    """The largest radius tried with a positive margin, and 0 if there is none.

    Parameters
    ----------
    margin
        A lower bound of the margin within a radius; −inf if nothing is known.
    at_input
        The margin at the input, where the search begins.
    guess
        The first radius that is tried.
    steps
        How many are tried at most.
    tolerance
        Ratio of what is left of the interval to its end at which the search stops.

    Notes
    -----
    Far from the end the margin falls ever faster, so that radii are multiplied by factors. Near
    it, it is roughly a line: the next radius is where a line through the last success and the last
    failure is 0, or the middle if the same side was hit twice.
    """
    if not (at_input > 0 and guess > 0):
        return 0.0
    low, high = (0.0, at_input), (float("inf"), -float("inf"))
    radius, last, repeated = guess, 0, False
    for _ in range(steps):
        found = margin(radius)
        side = 1 if found > 0 else -1
        repeated, last = side == last, side
        if side > 0:
            low = (radius, found)
        else:
            high = (radius, found)
        if high[0] < float("inf") and high[0] - low[0] <= tolerance * high[0]:
            break
        radius = _next(low, high, repeated=repeated)
        if not low[0] < radius < high[0]:
            break
    return low[0]


def _next(low: tuple[float, float], high: tuple[float, float], *, repeated: bool) -> float:
    """The next radius to try between a success and a failure."""
    if high[0] == float("inf"):
        return low[0] * 1.6
    if low[0] == 0:
        return high[0] / 4
    if high[0] > 1.6 * low[0]:
        return math.sqrt(high[0] * low[0])
    share = 0.5
    if high[1] > -float("inf") and not repeated:
        share = low[1] / (low[1] - high[1])
    # a little short of the zero, so that the line's own error decides less often
    return low[0] + (high[0] - low[0]) * min(max(share * (1 - 1e-4), 0.02), 0.98)
