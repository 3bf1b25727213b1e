"""Judge alarms on runs that they were not chosen on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from taut.reproduce.early_warning.comparison import (
    SignalAlarm,
    WatchedRun,
    lead,
    mean_share,
)
from taut.reproduce.early_warning.faults import FAULTS, HEALTHY
from taut.reproduce.early_warning.signals import SIGNALS


class JudgedSignal(NamedTuple):
    """An alarm on the runs that it was not chosen on; a lead of 0 means that it did not warn."""

    name: str
    rule: str
    leads: dict[str, list[int]]
    share: float
    false_alarms: int
    equal: float | None  # the share at thresholds that as many of all healthy runs exceed


def healthy_runs(runs: Sequence[WatchedRun]) -> list[WatchedRun]:
    """Runs without a fault that did not diverge."""
    return [run for run in runs if run.name in HEALTHY and run.diverged is None]


def diverged_runs(runs: Sequence[WatchedRun]) -> list[WatchedRun]:
    """Runs with a fault that did."""
    return [run for run in runs if run.name in FAULTS and run.diverged is not None]


def judge(alarm: SignalAlarm, equal: SignalAlarm, runs: Sequence[WatchedRun]) -> JudgedSignal:
    """An alarm on some runs; ``equal`` is the same at another threshold."""
    firsts = [alarm.first(run) for run in runs]
    diverged = diverged_runs(runs)
    share = mean_share(diverged, [equal.first(run) for run in diverged])
    return judged_by(SIGNALS[alarm.signal], str(alarm.rule), runs, firsts, share)


def judged_by(
    name: str,
    rule: str,
    runs: Sequence[WatchedRun],
    firsts: Sequence[int | None],
    equal: float | None,
) -> JudgedSignal:
    """What first alarms in runs are worth."""
    pairs = list(zip(runs, firsts, strict=True))
    diverged = diverged_runs(runs)
    leads = {
        fault: [lead(r, first) for r, first in pairs if r.name == fault and r.diverged is not None]
        for fault in FAULTS
    }
    share = mean_share(diverged, [first for r, first in pairs if r in diverged])
    false = sum(first is not None for r, first in pairs if r in healthy_runs(runs))
    return JudgedSignal(name, rule, leads, share, false, equal)
