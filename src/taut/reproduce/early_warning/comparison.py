"""Alarms of every signal at an equal rate of false alarms, and how early they come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from taut.reproduce.early_warning.faults import FAULTS
from taut.reproduce.early_warning.rules import (
    RULES,
    AlarmRule,
    divergence,
    first_alarm,
    statistic,
    threshold,
)

MARGIN = 0.1  # nats that a held-out loss stays above its best in a run that diverged
Records = list[dict[str, Any]]


class WatchedRun(NamedTuple):
    """A training that was watched from the step at which faults begin."""

    seed: int
    name: str
    history: Records
    after: Records
    every: int
    diverged: int | None  # the record at which it diverged
    twin: Records  # a healthy run from the same weights on the same text; none for healthy runs

    @property
    def steps(self) -> int:
        """Steps from where the fault begins until the run diverges."""
        assert self.diverged is not None
        return self.diverged * self.every

    def series(self, signal: str) -> tuple[list[float], list[float]]:
        """A signal before and after faults begin."""
        before, after = ([r[signal] for r in part] for part in (self.history, self.after))
        return before, after


class SignalAlarm(NamedTuple):
    """A signal with the rule and threshold that were chosen for it."""

    signal: str
    rule: AlarmRule
    limit: float
    false_alarms: int  # of the healthy runs that the threshold was set on

    def first(self, run: WatchedRun) -> int | None:
        """The record of the first alarm in a run; none if its twin alarms by then, too.

        Such an alarm would have come without the fault.
        """
        found = self._in(run)
        if found is None or not run.twin:
            return found
        without = self._in(run._replace(after=run.twin))
        return None if without is not None and without <= found else found

    def _in(self, run: WatchedRun) -> int | None:
        return first_alarm(statistic(*run.series(self.signal), self.rule), self.limit)


def watched_runs(families: Iterable[dict[str, Any]]) -> list[WatchedRun]:
    """All runs of some records, each with the record at which it diverged, and its twin."""
    runs = []
    for family in families:
        history = family["history"]
        every, branches = family["recipe"]["every"], family["branches"]
        for name, after in branches.items():
            before, then = ([r["held_out"] for r in part] for part in (history, after))
            event = divergence(before, then, MARGIN)
            twin = branches["healthy"] if name in FAULTS else []
            runs.append(WatchedRun(family["seed"], name, history, after, every, event, twin))
    return runs


def lead(run: WatchedRun, alarm: int | None) -> int:
    """Steps by which an alarm comes before the divergence; 0 if it does not."""
    assert run.diverged is not None
    return 0 if alarm is None else max(0, run.diverged - alarm) * run.every


def chosen_alarm(
    signal: str, healthy: Sequence[WatchedRun], faulty: Sequence[WatchedRun], allowed: int
) -> SignalAlarm:
    """The rule that warns best of faults, each at the threshold that healthy runs allow.

    Best is the largest share of the time between fault and divergence that is left after the
    alarm, in the mean over faults of the mean over runs. All signals have the same rules.
    """
    if not healthy:
        raise ValueError("thresholds need healthy runs, and all that were to be healthy diverged")
    best, gained = None, -math.inf
    for rule in RULES:
        alarm = reset(SignalAlarm(signal, rule, math.inf, 0), healthy, allowed)
        gain = mean_share(faulty, [alarm.first(run) for run in faulty])
        if gain > gained:  # of equals, the first
            best, gained = alarm, gain
    assert best is not None
    return best


def reset(alarm: SignalAlarm, healthy: Sequence[WatchedRun], allowed: int) -> SignalAlarm:
    """The same rule at the threshold that other healthy runs allow."""
    peaks = [statistic(*run.series(alarm.signal), alarm.rule).max() for run in healthy]
    limit = threshold(peaks, min(allowed, len(peaks) - 1))
    return alarm._replace(limit=limit, false_alarms=sum(peak > limit for peak in peaks))


def mean_share(runs: Sequence[WatchedRun], alarms: Sequence[int | None]) -> float:
    """The share of the time from fault to divergence that alarms leave, every fault alike."""
    shares: dict[str, list[float]] = {}
    for run, alarm in zip(runs, alarms, strict=True):
        if run.diverged:  # at the very first record nothing can come before
            shares.setdefault(run.name, []).append(lead(run, alarm) / run.steps)
    return mean(mean(each) for each in shares.values()) if shares else 0.0


def grown_gradient(run: WatchedRun) -> int | None:
    """The first alarm of :class:`taut.control.GradientAlarm`, which needs no healthy runs."""
    from taut.control import GradientAlarm

    alarm = GradientAlarm()
    for index, record in enumerate([*run.history, *run.after]):
        if alarm.add(record["gradient_norm"]):
            return max(0, index - len(run.history))
    return None


def monitor_alarm(run: WatchedRun) -> int | None:
    """The first of all alarms that the monitor has by default."""
    found = [each for each in (fixed_limits(run), grown_gradient(run)) if each is not None]
    return min(found, default=None)


def fixed_limits(run: WatchedRun) -> int | None:
    """The first alarm of the monitor's limits of attention, which need no healthy runs either.

    They are those of :class:`taut.control.Monitor`: a score above 64 and 4 times the first, the
    entropy of a layer below a tenth of the first, or that of a head below 0.01 nats.
    """
    first = run.history[0]
    score, entropy = np.array(first["head_score"]), np.array(first["head_entropy"])
    for index, record in enumerate([*run.history, *run.after]):
        scores, entropies = np.array(record["head_score"]), np.array(record["head_entropy"])
        grew = (scores > 64) & (scores > 4 * score)
        fell = (entropies < 0.01) & (entropy >= 0.01)
        flat = entropies.mean(axis=1) < 0.1 * entropy.mean(axis=1)
        if grew.any() or fell.any() or flat.any() or np.isnan(scores).any():
            return max(0, index - len(run.history))
    return None
