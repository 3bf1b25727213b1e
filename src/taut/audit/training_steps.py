"""Records of trainings over steps: one folder a training, one record a step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from taut.audit.record import Record
from taut.audit.records_in_folder import record_files
from taut.audit.verdict import mean_of_heads


class TrainingStep(NamedTuple):
    """What one record of a training says.

    Attributes
    ----------
    step
        The last number in the name of its file.
    mean
        Mean over heads of their mean l2 constants.
    largest
        Largest l2 constant of all rows.
    kind
        What the mean is: exact, upper or of a sample.
    """

    step: int
    mean: float
    largest: float
    kind: str


class TrainingRecords(NamedTuple):
    """A training: its name, its steps in their order, and its last record."""

    name: str
    steps: list[TrainingStep]
    last: Record


def read_training(folder: Path | str) -> TrainingRecords:
    """The records in a folder, by the last number in their names: ``step-200.json``.

    A ValueError says which names have no number, or the same one.
    """
    folder, found = Path(folder), dict[int, Path]()
    for file in record_files(folder):
        number = re.findall(r"\d+", _without_digest(file.stem))
        if not number:
            raise ValueError(
                f"{file} has no step in its name: records of a training are called step-100.json "
                "and the like, or give the files themselves"
            )
        step = int(number[-1])
        if step in found:
            raise ValueError(f"{found[step]} and {file} are both of step {step}")
        found[step] = file
    if not found:
        raise ValueError(f"there are no records in {folder}")
    steps, last = [], None
    for step in sorted(found):
        last = Record.load(found[step])
        rows = [row for row in last.heads if row["rows"]]
        largest = max((row["largest"] for row in rows), default=float("nan"))
        kind = last.columns["mean"].kind
        steps.append(TrainingStep(step, mean_of_heads(last), largest, kind))
    assert last is not None
    return TrainingRecords(folder.name or str(folder), steps, last)


def _without_digest(stem: str) -> str:
    """A name without the digest that ``taut audit`` ends it with."""
    return re.sub(r"-[0-9a-f]{16}$", "", stem)


def shared_steps(trainings: Sequence[TrainingRecords]) -> list[int]:
    """The steps that any training has, in their order."""
    return sorted({step.step for training in trainings for step in training.steps})
