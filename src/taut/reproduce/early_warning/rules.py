"""When a signal raises an alarm: a few rules, the same for every signal, and their thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
RECENT = 20  # records that a value is compared with
REFERENCE = slice(-40, -20)  # records of the history that a level is compared with
KINDS = ("level", "change since", "departure")


class AlarmRule(NamedTuple):
    """What of a signal is compared with a threshold.

    Attributes
    ----------
    kind
        ``"level"``: the signal itself. ``"change since"``: its change relative to what it was
        before. ``"departure"``: its distance from the median of recent records, in units of
        their spread.
    upwards
        Whether large values alarm, or small ones.
    smooth
        The median of so many records takes the place of each.
    """

    kind: str
    upwards: bool
    smooth: int

    def __str__(self) -> str:
        way = "above" if self.upwards else "below"
        smooth = f", median of {self.smooth}" if self.smooth > 1 else ""
        return f"{self.kind} {way}{smooth}"


RULES = tuple(AlarmRule(*each) for each in product(KINDS, (True, False), (1, 3)))


def statistic(history: Sequence[float], after: Sequence[float], rule: AlarmRule) -> Array:
    """What the rule compares with its threshold, for each record after the history.

    It uses records up to that one only. A signal that is NaN is above every threshold.
    """
    values = np.array([*history, *after], dtype=float)
    first = len(history)
    broken = ~np.isfinite(values)
    values = np.where(broken, np.nan, values)
    if rule.smooth > 1:
        values = np.array(
            [np.median(values[max(0, i - rule.smooth + 1) : i + 1]) for i in range(len(values))]
        )
    found = values[first:]
    if rule.kind == "change since":
        before = np.median(values[:first][REFERENCE])
        found = (found - before) / (abs(before) + 1e-12)
    elif rule.kind == "departure":
        found = np.array([_departure(values, i) for i in range(first, len(values))])
    found = found if rule.upwards else -found
    return np.where(np.isnan(found), np.inf, found)


def _departure(values: Array, i: int) -> float:
    recent = values[max(0, i - RECENT) : i]
    middle = np.median(recent)
    spread = 1.4826 * np.median(np.abs(recent - middle))
    return float((values[i] - middle) / (spread + 1e-3 * abs(middle) + 1e-12))


def threshold(peaks: Sequence[float], allowed: int) -> float:
    """The lowest threshold that at most ``allowed`` of these largest values are above."""
    if not 0 <= allowed < len(peaks):
        raise ValueError(f"allowed must be from 0 to {len(peaks) - 1}, got {allowed}")
    return sorted(peaks, reverse=True)[allowed]


def first_alarm(values: Array, limit: float) -> int | None:
    """The first record above a threshold."""
    above = np.flatnonzero(values > limit)
    return int(above[0]) if above.size else None


def divergence(history: Sequence[float], after: Sequence[float], margin: float) -> int | None:
    """The first record after the history from which on a loss stays above its best by a margin.

    The best is the lowest loss until then. A loss that is NaN is above everything; a spike after
    which the loss comes back is not a divergence.
    """
    values = np.array([*history, *after], dtype=float)
    values = np.where(np.isnan(values), np.inf, values)
    best = np.minimum.accumulate(values)
    above = (values > best + margin)[len(history) :]
    if not above.size or not above[-1]:
        return None
    fine = np.flatnonzero(~above)
    return int(fine[-1]) + 1 if fine.size else 0
