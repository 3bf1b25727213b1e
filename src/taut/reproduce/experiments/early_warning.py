"""Early warning: which signal says first that a training goes wrong, at equal false alarms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from taut._base.files import write_whole
from taut.reproduce.early_warning.comparison import (
    MARGIN,
    SignalAlarm,
    WatchedRun,
    chosen_alarm,
    fixed_limits,
    lead,
    mean_share,
    watched_runs,
)
from taut.reproduce.early_warning.faults import FAULTS, HEALTHY
from taut.reproduce.early_warning.signals import CONSTANTS, SIGNALS
from taut.reproduce.early_warning.training import QUICK, Recipe, train_family
from taut.reproduce.lipschitz.characters import Characters
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable

CHOOSING, JUDGING = 4, 5  # seeds to set thresholds and choose rules on, and others to judge by
ALLOWED = 1  # false alarms of the healthy runs that thresholds are set on
FIXED = "fixed limits"


class Judged(NamedTuple):
    """An alarm on the runs that it was not chosen on; a lead of 0 means that it did not warn."""

    name: str
    rule: str
    leads: dict[str, list[int]]
    share: float
    false_alarms: int


def run(options: Options) -> Result:
    """Train what is missing, choose an alarm for every signal, and judge it on other seeds."""
    if len(options.data) != 1:
        raise ValueError(
            "early-warning needs a text: --data shakespeare.txt (tiny Shakespeare, which is "
            "experiments/shakespeare.txt.gz in the repository)"
        )
    text = Characters.read(Path(options.data[0]))
    recipe, first, many = (
        (QUICK, 1, 2) if options.quick else (Recipe(), CHOOSING, CHOOSING + JUDGING)
    )
    folder = options.folder / "early-warning-runs"
    folder.mkdir(parents=True, exist_ok=True)
    families = []
    for number in range(many):
        file = folder / f"{'quick-' if options.quick else ''}{options.seed + number}.json"
        if not file.exists():  # written whole, so what is there is finished
            told = f"seed {number + 1} of {many}"
            found = train_family(options.seed + number, recipe, HEALTHY | FAULTS, text, told)
            write_whole(json.dumps(found), file)
        families.append(json.loads(file.read_text()))
    return made(families[:first], families[first:])


def made(calibration: list[dict[str, Any]], test: list[dict[str, Any]]) -> Result:
    """The result of finished trainings: alarms are chosen on some seeds, judged on others."""
    known, new = watched_runs(calibration), watched_runs(test)
    alarms = [
        chosen_alarm(signal, _healthy(known), _diverged(known), ALLOWED) for signal in SIGNALS
    ]
    judged = [_judged(alarm, new) for alarm in alarms]
    judged.sort(key=lambda each: (each.share, -each.false_alarms), reverse=True)
    fixed = _of_firsts(FIXED, "–", new, [fixed_limits(run) for run in new])
    settings = {
        **calibration[0]["recipe"], "seeds": f"{len(calibration)} to choose, {len(test)} to judge",
        "margin": MARGIN, "allowed": f"{ALLOWED} of {len(_healthy(known))}",
    }  # fmt: skip
    return Result(
        "early-warning",
        "Early warning: which signal says first that a training goes wrong",
        settings,
        list(_claims(judged)),
        [_lead_table([*judged, fixed], new), _rule_table(alarms, judged), _run_table(known, new)],
        [_plot(judged, new)],
        list(_remarks(judged, fixed, new, calibration[0])),
    )


def _healthy(runs: Sequence[WatchedRun]) -> list[WatchedRun]:
    return [run for run in runs if run.name in HEALTHY and run.diverged is None]


def _diverged(runs: Sequence[WatchedRun]) -> list[WatchedRun]:
    return [run for run in runs if run.name in FAULTS and run.diverged is not None]


def _judged(alarm: SignalAlarm, runs: Sequence[WatchedRun]) -> Judged:
    firsts = [alarm.first(run) for run in runs]
    return _of_firsts(SIGNALS[alarm.signal], str(alarm.rule), runs, firsts)


def _of_firsts(
    name: str, rule: str, runs: Sequence[WatchedRun], firsts: Sequence[int | None]
) -> Judged:
    pairs = list(zip(runs, firsts, strict=True))
    diverged = _diverged(runs)
    leads = {
        fault: [lead(r, first) for r, first in pairs if r.name == fault and r.diverged is not None]
        for fault in FAULTS
    }
    share = mean_share(diverged, [first for r, first in pairs if r in diverged])
    false = sum(first is not None for r, first in pairs if r in _healthy(runs))
    return Judged(name, rule, leads, share, false)


def _claims(judged: list[Judged]) -> Iterator[Claim]:
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


def _lead_table(judged: list[Judged], runs: Sequence[WatchedRun]) -> ResultTable:
    many = len(_healthy(runs))
    rows = [
        [each.name, *(_told(each.leads[fault]) for fault in FAULTS), f"{each.share:.0%}",
         f"{each.false_alarms} of {many}"]
        for each in judged
    ]  # fmt: skip
    times = [
        f"{median(found):g} ({min(found)} to {max(found)})" if found else "–"
        for found in ([r.steps for r in _diverged(runs) if r.name == f] for f in FAULTS)
    ]
    rows.append(["steps from fault to divergence", *times, "", ""])
    header = ["signal", *FAULTS, "share of the time left", "false alarms"]
    title = "Steps from the alarm to the divergence: median (range), runs warned of those diverged"
    return ResultTable(title, header, rows)


def _told(leads: Sequence[int]) -> str:
    if not leads:
        return "–"
    warned = sum(each > 0 for each in leads)
    return f"{median(leads):g} ({min(leads)} to {max(leads)}), {warned} of {len(leads)}"


def _rule_table(alarms: Sequence[SignalAlarm], judged: Sequence[Judged]) -> ResultTable:
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


def _plot(judged: list[Judged], runs: Sequence[WatchedRun]) -> Plot:
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


def _remarks(
    judged: list[Judged], fixed: Judged, runs: Sequence[WatchedRun], family: dict[str, Any]
) -> Iterator[str]:
    recipe = Recipe(**family["recipe"])
    first = judged[0]
    constants = {SIGNALS[name] for name in CONSTANTS}
    best = next(each for each in judged if each.name in constants)
    place = judged.index(best) + 1
    said = (
        "Exact local constants led."
        if place == 1
        else f"Exact local constants did not lead: the best of them ({best.name}) is number "
        f"{place} of {len(judged)} and leaves {best.share:.0%}."
    )
    yield (
        f"**The {first.name} warned first.** At thresholds that let {ALLOWED} of the healthy runs "
        f"alarm, it left {first.share:.0%} of the time between fault and divergence, in the mean "
        f"over the faults. {said} The fixed limits that the monitor has without any healthy run to "
        f"compare with left {fixed.share:.0%}.\n"
    )
    yield (
        f"A decoder of characters ({recipe.layers} blocks, width {recipe.width}, {recipe.heads} "
        f"heads, {recipe.tokens} characters, no QK-norm) learns tiny Shakespeare with AdamW for "
        f"{recipe.before} steps of {recipe.batch} pieces. From there the same weights go on for "
        f"{recipe.after} steps in {len(HEALTHY | FAULTS)} ways: healthy, or with a fault. Signals "
        f"are recorded every {recipe.every} steps, on the batch that is trained on.\n"
    )
    yield (
        f"A run has **diverged** at the record from which on its held-out loss stays {MARGIN} nats "
        "above the best until then, or is NaN. A spike after which the loss comes back is not an "
        "event, and an alarm at it is a false one if the run is healthy. All signals have the same "
        "twelve rules: the level, the change since before, or the departure from recent records; "
        "upwards or downwards; single records or medians of three. Every threshold is the lowest "
        "that at most one of the healthy runs of the first seeds exceeds; the rule is the one that "
        "leaves most time on the faults of those seeds. What is shown are other seeds. An alarm "
        "that comes as early in the healthy run from the same weights on the same text does not "
        "count as a warning. Healthy "
        "runs of one seed share their first part, so that they are less independent than their "
        "number says.\n"
    )
