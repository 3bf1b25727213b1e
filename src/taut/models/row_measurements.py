"""Measure every row of a softmax: constants, entropy, largest weight, range of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from taut._base.array import namespace
from taut._softmax import interpolate
from taut.models._gpu_rows.gpu_rows import row_numbers
from taut.models.layout import AttentionRows
from taut.models.row_statistics import (
    FORGOTTEN,
    SUMS,
    RowConstants,
    RowSums,
    reduced,
    reduced_with_constants,
)
from taut.models.score_blocks import FusedScores, ScoreBlock, WrittenScores

Array = np.ndarray[Any, np.dtype[Any]]
Measure = Callable[[ScoreBlock], torch.Tensor]
LIMIT = 0.5  # no constant of softmax exceeds it


def constant_key(p: float) -> str:
    """The name under which constants in l_p are kept: exact ones for 1, 2 and ∞, else bounds."""
    return {1.0: "one", 2.0: "two", math.inf: "one"}.get(p, f"l{p:g}")


class RowMeasurements(NamedTuple):
    """Numbers of every row, (samples, heads, queries)."""

    values: dict[str, Array]
    kept: Array  # rows that count
    broken: Array  # rows with NaN or +inf
    skipped: Array  # rows that were not chosen


def measure_rows(
    rows: AttentionRows,
    norms: Sequence[float] = (),
    *,
    chosen: Array | None = None,
    more: Mapping[str, Measure] | None = None,
    quick: bool = False,
) -> RowMeasurements:
    """Measure constants, entropy, largest weight and range of scores of every row.

    Padding tokens do not count. For ``norms`` other than 1, 2 and ∞ there is an upper
    bound of every row (theorem local-p-bracket); the constant in l2 is below it, as no norm of a
    symmetric matrix is smaller. ``chosen``, (samples, heads, queries), leaves rows out; ``more``
    are further numbers, found from a block of scores. ``quick`` bounds all constants by that in l1,
    which needs no more than the largest weight.
    """
    found = None
    # In a first look constants are upper bounds, and those of the kernel are rounded to nearest.
    if chosen is None and not more and not quick and isinstance(rows.reader, FusedScores):
        found = _by_gpu_kernel(rows.reader, norms)
    if found is None:
        picked = None if chosen is None else rows.in_model(chosen)
        found = _by_blocks(rows.reader, picked, norms, more or {}, quick=quick)
    values = {name: rows.arranged(value) for name, value in found.items()}
    nothing = np.zeros(rows.shape, dtype=bool)
    kept, broken = (values.pop(name, nothing) for name in ("kept", "broken"))
    counts = nothing if rows.real is None else ~rows.real.cpu().numpy()
    skipped = nothing if chosen is None else ~chosen & ~counts
    return RowMeasurements(values, kept & ~counts & ~skipped, broken & ~counts & ~skipped, skipped)


def _by_gpu_kernel(reader: FusedScores, norms: Sequence[float]) -> dict[str, Array] | None:
    """The numbers of all rows by the kernel for GPUs; None where it cannot be used."""
    offset = 0 if reader.causal else None
    found = row_numbers(reader.query, reader.key, reader.bias, reader.factor, offset)
    if found is None:
        return None
    wide = {name: value.double() for name, value in found.items()}
    wide["rest"] = wide["log_sum"].expm1()
    # What the kernel may err by, several times: an estimate, see its docstring.
    above = 1 + 4 * (8 + math.log(reader.keys)) * 2.0**-23
    one, two = wide["one"], wide["two"]
    constants = RowConstants(one, two, one * above, two * above)
    values = numbers_of(RowSums(*(wide[name] for name in RowSums._fields)), constants, norms)
    return {name: value.cpu().numpy() for name, value in values.items()}


@torch.no_grad()
def _by_blocks(
    reader: WrittenScores | FusedScores,
    chosen: Array | None,
    norms: Sequence[float],
    more: Mapping[str, Measure],
    *,
    quick: bool,
) -> dict[str, Array]:
    """The numbers of the chosen rows, block by block, in the shape of the reader's rows."""
    names = (*RowSums._fields, *RowConstants._fields, *more)
    lines = np.zeros((len(names), *reader.shape))
    lines[0] = -np.inf  # rows that are not chosen see nothing
    for block in reader.blocks(chosen):
        if quick:
            sums = reduced(block.scores)
            constants = RowConstants(*[bounded_by_largest(sums, block.scores.shape[-1])] * 4)
        else:
            sums, constants = reduced_with_constants(block.scores)
        others = [measure(block) for measure in more.values()]
        numbers = torch.stack([each.double() for each in (*sums, *constants, *others)])
        block.put(lines, numbers.cpu().numpy())
    parts = torch.from_numpy(lines).unbind(0)
    first = len(RowSums._fields)
    sums, constants = RowSums(*parts[:first]), RowConstants(*parts[first : first + 4])
    values = numbers_of(sums, constants, () if quick else norms)
    found: dict[str, Array] = {name: value.numpy() for name, value in values.items()}
    if quick:
        found |= {constant_key(p): found["one"] for p in norms}
    return found | dict(zip(more, lines[len(names) - len(more) :], strict=True))


def numbers_of(
    sums: RowSums, constants: RowConstants, norms: Sequence[float]
) -> dict[str, torch.Tensor]:
    """What is kept of rows, from their sums and constants."""
    kept = sums.kept
    entropy = torch.where(kept, sums.entropy, 0.0)
    return {
        "entropy": entropy,
        "evenness": (entropy / sums.seen.clamp(min=2).log()).clamp(0.0, 1.0),
        "top": 1 / (1 + sums.rest),
        "first": sums.first,
        "leader": sums.leader,
        "range": torch.where(kept, sums.top - sums.lowest, 0.0),
        "score": torch.where(kept, sums.top, 0.0),
        "seen": sums.seen,
        "kept": kept,
        "broken": sums.broken,
        "one": constants.one,
        "two": constants.two,
        **{constant_key(p): _upper(constants, p) for p in norms},
    }


def bounded_by_largest(sums: RowSums, keys: int) -> torch.Tensor:
    """2p(1 − p) with p the largest weight (theorem local-1-inf), rounded up; at least ‖M‖₂.

    With T the sum of the other exponentials it is 2T/(1 + T)², so that nothing cancels.
    """
    # Increasing up to T = 1 and decreasing from there on.
    low = sums.rest * (1 - SUMS)
    high = sums.rest * (1 + SUMS) + keys * FORGOTTEN  # also of keys that count as masked
    most = torch.where((low <= 1) & (high >= 1), LIMIT, torch.maximum(_share(low), _share(high)))
    return (most * (1 + 1e-12)).clamp(max=LIMIT)


def _share(rest: torch.Tensor) -> torch.Tensor:
    return 2 * rest / (1 + rest) ** 2


def _upper(constants: RowConstants, p: float) -> torch.Tensor:
    """‖M‖₁^θ‖M‖₂^(1−θ) with θ = |1 − 2/p|, rounded up; never above ½."""
    first, second = constants.one_upper.double(), constants.two_upper.double()
    found: torch.Tensor = interpolate(namespace(first), first, second, p)
    return found.clamp(max=LIMIT)
