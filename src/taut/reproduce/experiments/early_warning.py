"""Early warning: which signal says first that a training goes wrong, at equal false alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean, median
from typing import Any

from taut.reproduce.early_warning.comparison import (
    MARGIN,
    SignalAlarm,
    WatchedRun,
    chosen_alarm,
    fixed_limits,
    grown_gradient,
    monitor_alarm,
    reset,
    watched_runs,
)
from taut.reproduce.early_warning.faults import FAULTS, HEALTHY
from taut.reproduce.early_warning.judged import (
    JudgedSignal,
    diverged_runs,
    healthy_runs,
    judge,
    judged_by,
)
from taut.reproduce.early_warning.remarks import ALLOWED, remarks
from taut.reproduce.early_warning.signals import CONSTANTS, SIGNALS
from taut.reproduce.early_warning.training import QUICK, FamilyRecipe, train_family
from taut.reproduce.kept_runs import kept_run
from taut.reproduce.lipschitz.characters import Characters
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable

CHOOSING, JUDGING = 4, 5  # seeds to set thresholds and choose rules on, and others to judge by
# The alarms of the monitor, which need no healthy training to compare with.
ALONE = {
    "limits of attention, fixed": fixed_limits,
    "growth of the gradient norm, fixed": grown_gradient,
    "all alarms of the monitor": monitor_alarm,
}


def run(options: Options) -> Result:
    """Train what is missing, choose an alarm for every signal, and judge it on other seeds."""
    text = Characters.given("early-warning", options.data)
    recipe, first, many = (
        (QUICK, 1, 2) if options.quick else (FamilyRecipe(), CHOOSING, CHOOSING + JUDGING)
    )
    folder = options.folder / "early-warning-runs"
    families = []
    for number in range(many):
        seed, told = options.seed + number, f"seed {number + 1} of {many}"
        train = partial(train_family, seed, recipe, HEALTHY | FAULTS, text, told)
        families.append(kept_run(folder, str(seed), (recipe, *text), train))
    return made(families[:first], families[first:])


def made(calibration: list[dict[str, Any]], test: list[dict[str, Any]]) -> Result:
    """The result of finished trainings: alarms are chosen on some seeds, judged on others."""
    known, new = watched_runs(calibration), watched_runs(test)
    alarms = [
        chosen_alarm(signal, healthy_runs(known), diverged_runs(known), ALLOWED)
        for signal in SIGNALS
    ]
    healthy, many = [*healthy_runs(known), *healthy_runs(new)], 2 * ALLOWED
    judged = [judge(alarm, reset(alarm, healthy, many), new) for alarm in alarms]
    judged.sort(key=lambda each: (each.share, -each.false_alarms), reverse=True)
    alone = [
        judged_by(name, "–", new, [alarm(run) for run in new], None)
        for name, alarm in ALONE.items()
    ]
    settings = {
        **calibration[0]["recipe"], "seeds": f"{len(calibration)} to choose, {len(test)} to judge",
        "margin": MARGIN, "allowed": f"{ALLOWED} of {len(healthy_runs(known))}",
    }  # fmt: skip
    return Result(
        "early-warning",
        "Early warning: which signal says first that a training goes wrong",
        settings,
        list(_claims(judged)),
        [_lead_table([*judged, *alone], new), _rule_table(alarms, judged), _run_table(known, new)],
        [_plot(judged, new)],
        list(remarks(judged, alone, new, calibration[0])),
    )


def _claims(judged: list[JudgedSignal]) -> Iterator[Claim]:
    constants = {SIGNALS[name] for name in CONSTANTS}
    best = max((each for each in judged if each.name in constants), key=lambda each: each.share)
    other = max((e for e in judged if e.name not in constants), key=lambda each: each.share)
    yield Claim(
        "exact local constants warn first: share of the time from fault to divergence that "
        "the alarm leaves, mean over faults",
        "–",
        f"{best.share:.0%} ({best.name}) against {other.share:.0%} ({other.name})",
        None,
    )


def _lead_table(judged: list[JudgedSignal], runs: Sequence[WatchedRun]) -> ResultTable:
    many = len(healthy_runs(runs))
    rows = [
        [each.name, *(_told(each.leads[fault]) for fault in FAULTS), f"{each.share:.0%}",
         f"{each.false_alarms} of {many}", "–" if each.equal is None else f"{each.equal:.0%}"]
        for each in judged
    ]  # fmt: skip
    times = [
        f"{median(found):g} ({min(found)} to {max(found)})" if found else "–"
        for found in ([r.steps for r in diverged_runs(runs) if r.name == f] for f in FAULTS)
    ]
    rows.append(["steps from fault to divergence", *times, "", "", ""])
    header = [
        "signal",
        *FAULTS,
        "share of the time left",
        "false alarms",
        "share at equal false alarms",
    ]
    title = "Steps from the alarm to the divergence: median (range), runs warned of those diverged"
    return ResultTable(title, header, rows)


def _told(leads: Sequence[int]) -> str:
    if not leads:
        return "–"
    warned = sum(each > 0 for each in leads)
    return f"{median(leads):g} ({min(leads)} to {max(leads)}), {warned} of {len(leads)}"


def _rule_table(alarms: Sequence[SignalAlarm], judged: Sequence[JudgedSignal]) -> ResultTable:
    chosen = {SIGNALS[alarm.signal]: alarm for alarm in alarms}
    rows = [
        [each.name, each.rule, f"{chosen[each.name].limit * (1 if up else -1):.4g}"]
        for each in judged
        for up in [chosen[each.name].rule.upwards]
    ]
    title = "The alarm of each signal, as chosen on the seeds that are not judged"
    return ResultTable(title, ["signal", "rule", "threshold"], rows)


def _run_table(known: Sequence[WatchedRun], new: Sequence[WatchedRun]) -> ResultTable:
    rows = []
    for name, how in (HEALTHY | FAULTS).items():
        cells = []
        for runs in (known, new):
            mine = [r for r in runs if r.name == name]
            cells.append(f"{sum(r.diverged is not None for r in mine)} of {len(mine)}")
        mine = [r for r in new if r.name == name]
        ends = [r.after[-1]["held_out"] for r in mine]
        spikes = sum(_spiked(r) for r in [*known, *new] if r.name == name)
        rows.append([name, how.said, *cells, str(spikes), f"{mean(ends):.2f}"])
    header = ["run", "what is done", "diverged, to choose", "diverged, to judge",
              "spikes that came back", "held-out loss at the end"]  # fmt: skip
    return ResultTable("The trainings", header, rows)


def _spiked(run: WatchedRun) -> bool:
    """Whether the held-out loss left its best by the margin and came back."""
    best = min(record["held_out"] for record in run.history)
    return run.diverged is None and any(r["held_out"] > best + MARGIN for r in run.after)


def _plot(judged: list[JudgedSignal], runs: Sequence[WatchedRun]) -> Plot:
    names = [each.name for each in reversed(judged)]
    curves = []
    for number, fault in enumerate(FAULTS):
        beside = 0.15 * ((len(FAULTS) - 1) / 2 - number)  # so that no point hides another
        found = [
            (median(each.leads[fault]), place + beside)
            for place, each in enumerate(reversed(judged), 1)
            if each.leads[fault]
        ]
        x, y = [list(each) for each in zip(*found, strict=True)] if found else ([], [])
        curves.append(Curve(fault, x, y, points=True))
    title = "How early each signal warns, median of the seeds"
    return Plot(title, "steps before the divergence", "", curves, names=names)
