"""The table of a campaign."""

from __future__ import annotations

import datetime

from benchmarks.machine import machine
from benchmarks.timing import table
from fuzz.areas import AREAS
from fuzz.tally import Tally

TITLE = """# Trying to break the bounds

Written by `{command}` on {date}. A case is broken if a bound is exceeded there, is not a number, or
cannot be found at all. The ratio of a case is what its area says; above 1 the bound is broken.
"""


def text(tallies: dict[str, Tally]) -> str:
    """Cases, violations and the worst ratio of each area."""
    rows = [
        [
            name, _count(tally.cases, AREAS[name].goal, AREAS[name].unit),
            f"{tally.broken:,}", f"{tally.worst:.4f}", tally.worst_kind,
            f"{tally.seconds / 60:.1f}", AREAS[name].ratio,
        ]
        for name, tally in tallies.items()
    ]  # fmt: skip
    header = ["area", "cases", "broken", "worst ratio", "where", "minutes of a core", "the ratio"]
    return table(header, rows)


def _count(cases: int, goal: int, unit: str) -> str:
    """How many cases there were, and of how many where that is fewer than a full run has."""
    return f"{cases:,} {unit}" if cases >= goal else f"{cases:,} of {goal:,} {unit}"


def page(tallies: dict[str, Tally], command: str) -> str:
    """The table with its date and machine, as RESULTS.md has it."""
    title = TITLE.format(command=command, date=datetime.date.today())
    short = [name for name, tally in tallies.items() if tally.cases < AREAS[name].goal]
    if short:
        title += f"It was stopped before these had the cases of a full run: {', '.join(short)}.\n"
    return f"{title}\n{machine()}\n\n{text(tallies)}\n"
