"""Shards: which part of the data one of several jobs audits, by number or as its job array says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from taut._base.checks import whole_number
from taut.audit.sample_spans import Span

_WRITTEN = re.compile(r"\s*(auto|\d{1,9})\s*(?:/\s*(\d{1,9})\s*)?", re.ASCII)


class Shard(NamedTuple):
    """One of several equal parts of the data.

    Attributes
    ----------
    number
        Which part it is, from 1 to ``total``.
    total
        How many parts there are.
    complete
        Whether all of its samples were seen.
    """

    number: int
    total: int
    complete: bool = False

    def of(self, batches: Sequence[Span]) -> list[Span]:
        """Its batches, spread evenly: shards of sorted data take about the same time, too."""
        return list(batches[self.number - 1 :: self.total])

    def is_part_of(self, other: Shard | None) -> bool:
        """Whether another shard is the same one, however far it has come."""
        return other is not None and other[:2] == self[:2]

    def __str__(self) -> str:
        return f"shard {self.number} of {self.total}"


class ArrayVariables(NamedTuple):
    """The variables by which a scheduler tells a task of a job array which one it is.

    ``first`` is the variable with the smallest number, or that number; where neither ``last`` nor
    ``tasks`` is known, the user must say how many tasks there are.
    """

    scheduler: str
    task: str
    first: str | int = 1
    last: str = ""
    step: str = ""
    tasks: str = ""


JOB_ARRAYS = (
    ArrayVariables(
        "Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_STEP", "SLURM_ARRAY_TASK_COUNT",
    ),
    ArrayVariables(
        "Grid Engine", "SGE_TASK_ID", "SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE"
    ),
    ArrayVariables("LSF", "LSB_JOBINDEX", 1, "LSB_JOBINDEX_END", "LSB_JOBINDEX_STEP"),
    ArrayVariables("PBS", "PBS_ARRAY_INDEX"),
    ArrayVariables("Torque", "PBS_ARRAYID"),
    ArrayVariables("AWS Batch", "AWS_BATCH_JOB_ARRAY_INDEX", 0, tasks="AWS_BATCH_JOB_ARRAY_SIZE"),
    ArrayVariables("Kubernetes", "JOB_COMPLETION_INDEX", 0),
)  # fmt: skip


def read_shard(
    given: str | Sequence[int] | None, variables: Mapping[str, str] | None = None
) -> Shard | None:
    """The shard that was asked for: ``"3/16"``, ``(3, 16)``, ``"auto"`` or ``"auto/16"``.

    The only shard of one is all of the data, as no shard is: None.
    """
    if given is None:
        return None
    if not isinstance(given, str):
        if len(given) < 2:
            raise ValueError(f"shard must be (number, count), such as (1, 4), got {given!r}")
        return _checked(*(whole_number(n, name="shard", least=0) for n in given[:2]))
    match = _WRITTEN.fullmatch(given)
    if match is None or (match[1] != "auto" and match[2] is None):
        raise ValueError(
            "shard must be i/n, such as 1/4 to 4/4, or auto in a job array, or auto/n where the "
            f"array has the tasks 1 to n; got {given!r}"
        )
    count = None if match[2] is None else int(match[2])
    if match[1] != "auto":
        assert count is not None
        return _checked(int(match[1]), count)
    return _of_array(os.environ if variables is None else variables, count)


def _checked(number: int, count: int) -> Shard | None:
    if not 1 <= number <= count:
        raise ValueError(
            f"there is no shard {number} of {count}: shards are counted from 1, as in 1/4 to 4/4"
        )
    return None if count == 1 else Shard(number, count)


def _of_array(variables: Mapping[str, str], count: int | None) -> Shard | None:
    for array in JOB_ARRAYS:
        task = _number(variables, array.task)
        if task is None or (array.scheduler == "LSF" and task == 0):  # not in an array
            continue
        if count is not None:
            number = task if array.first != 0 else task + 1
            if 1 <= number <= count:
                return _checked(number, count)
            raise ValueError(
                f"{array.task} is {task}, and auto/{count} needs an array with the tasks 1 to "
                f"{count}: number them so, or give the shard as i/n"
            )
        return _checked(*_evenly(array, variables, task))
    known = ", ".join(array.task for array in JOB_ARRAYS)
    raise ValueError(f"this is not a task of a job array (none of {known} is set): give i/n")


def _evenly(array: ArrayVariables, variables: Mapping[str, str], task: int) -> tuple[int, int]:
    """The number of a task in an array whose numbers are evenly spaced, and how many there are."""
    first = array.first if isinstance(array.first, int) else _number(variables, array.first)
    last, step = _number(variables, array.last), _number(variables, array.step) or 1
    count = _number(variables, array.tasks)
    if first is not None and last is not None:
        steps = (last - first) // step + 1
        if (count is not None and count != steps) or (task - first) % step:
            raise ValueError(
                f"the tasks of this {array.scheduler} array are not evenly spaced: give auto/n if "
                "they are some of the tasks 1 to n, or the shard as i/n"
            )
        count = steps
    if first is None or count is None:
        raise ValueError(
            f"{array.task} is {task}, but {array.scheduler} does not say how many tasks there "
            "are: give auto/n if the array has the tasks 1 to n"
        )
    return (task - first) // step + 1, count


def _number(variables: Mapping[str, str], name: str) -> int | None:
    """The number in a variable; None where it is not set, or says "undefined"."""
    text = variables.get(name, "").strip()
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None
