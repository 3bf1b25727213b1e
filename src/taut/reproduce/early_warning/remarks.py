"""What was found, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from taut.reproduce.early_warning.comparison import MARGIN, WatchedRun
from taut.reproduce.early_warning.faults import FAULTS, HEALTHY
from taut.reproduce.early_warning.judged import JudgedSignal, healthy_runs
from taut.reproduce.early_warning.signals import CONSTANTS, SIGNALS
from taut.reproduce.early_warning.training import FamilyRecipe

ALLOWED = 1  # false alarms of the healthy runs that thresholds are set on


def remarks(
    judged: list[JudgedSignal],
    alone: Sequence[JudgedSignal],
    runs: Sequence[WatchedRun],
    family: dict[str, Any],
) -> Iterator[str]:
    """The sentences of the page; alarms come with the best first.

    ``alone`` are those of the monitor: of attention, of the gradient norm, and both together.
    """
    recipe = FamilyRecipe(**family["recipe"])
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
        f"over the faults. {said}\n"
    )
    yield _without_healthy_runs(alone, len(healthy_runs(runs)))
    yield (
        f"Thresholds were set so that {ALLOWED} healthy run alarms; on the seeds that are judged, "
        f"{min(e.false_alarms for e in judged)} to {max(e.false_alarms for e in judged)} of "
        f"{len(healthy_runs(runs))} did, so that rates are equal only where they were set. "
        "The last column sets the same rules' thresholds again, so that at most "
        f"{2 * ALLOWED} of all healthy runs alarm, those that are judged among them: there "
        f"{_best(judged, 'equal')} leads. This column was added after the first look at the "
        "results.\n"
    )
    yield (
        "How often each fault was warned of, by its best signal: "
        + "; ".join(_best_of_fault(judged, fault) for fault in FAULTS)
        + ".\n"
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
        "number says. Faults and the margin were adjusted on the first seed, which is not judged, "
        "until each fault did damage within its run; margin, rules and thresholds were not changed "
        "after that.\n"
    )
    yield (
        "Two blocks of width 64, five seeds and faults that act within tens of steps say little "
        "about large trainings. Attention measured at the monitor's default interval of 100 steps "
        "would have come too late for most of these runs, while the gradient norm is read every "
        "fifth step; together they cost less than half a per cent of a training "
        "(`benchmarks/RESULTS.md`).\n"
    )


def _without_healthy_runs(alone: Sequence[JudgedSignal], healthy: int) -> str:
    """What the alarms of the monitor are worth."""
    from taut.control import GradientAlarm

    growth = GradientAlarm.growth
    attention, gradient, both = alone
    return (
        "The monitor has no healthy run to compare with. Its limits of attention left "
        f"{attention.share:.0%} of the time ({_false(attention)}, of {healthy} healthy runs). So "
        "it warns by the gradient norm too: when the median of three readings, five steps apart, "
        f"is more than {growth:g} times that of the twenty before. That left "
        f"{gradient.share:.0%} ({_false(gradient)}), both together {both.share:.0%} "
        f"({_false(both)}). The {growth:g} was set on the seeds that choose and the first one that "
        "judges; the largest value in their 15 healthy runs was 1.4.\n"
    )


def _false(alarm: JudgedSignal) -> str:
    return f"false alarms in {alarm.false_alarms}" if alarm.false_alarms else "no false alarm"


def _best(judged: Sequence[JudgedSignal], what: str) -> str:
    first = max(judged, key=lambda each: getattr(each, what))
    return f"the {first.name} ({getattr(first, what):.0%})"


def _best_of_fault(judged: Sequence[JudgedSignal], fault: str) -> str:
    first = max(
        judged, key=lambda each: (sum(n > 0 for n in each.leads[fault]), sum(each.leads[fault]))
    )
    warned = sum(n > 0 for n in first.leads[fault])
    return f"{fault}, {warned} of {len(first.leads[fault])} ({first.name})"
