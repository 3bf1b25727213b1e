"""Measure every row of a softmax: constants, entropy, largest weight, range of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from taut._base.array import namespace
from taut._base.bound import Bound
from taut._softmax import interpolate, local_lipschitz
from taut.models._gpu_rows.gpu_rows import row_numbers
from taut.models.layout import AttentionRows
from taut.models.masks import HIDDEN
from taut.models.row_statistics import FORGOTTEN, SUMS, RowSums, reduced
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
    rest = wide["log_sum"].expm1()
    values = numbers_of(
        RowSums(wide["top"], wide["lowest"], wide["seen"], rest, wide["mean"], wide["first"])
    )
    values |= {"one": wide["one"], "two": wide["two"]}
    # What the kernel may err by, several times: an estimate, see its docstring.
    above = 1 + 4 * (8 + math.log(reader.keys)) * 2.0**-23
    for p in norms:
        bound = interpolate(namespace(rest), wide["one"] * above, wide["two"] * above, p)
        values[constant_key(p)] = bound.clamp(max=LIMIT)
    return {name: value.cpu().numpy() for name, value in values.items()}


def _by_blocks(
    reader: WrittenScores | FusedScores,
    chosen: Array | None,
    norms: Sequence[float],
    more: Mapping[str, Measure],
    *,
    quick: bool,
) -> dict[str, Array]:
    """The numbers of the chosen rows, block by block, in the shape of the reader's rows."""
    found: dict[str, Array] = {}
    for block in reader.blocks(chosen):
        for name, value in measure_block(block, norms, more, quick=quick).items():
            numbers = value.cpu().numpy()
            if name not in found:
                found[name] = np.zeros(reader.shape, dtype=numbers.dtype)
            block.put(found[name], numbers)
    return found


@torch.no_grad()
def measure_block(
    block: ScoreBlock, norms: Sequence[float], more: Mapping[str, Measure], *, quick: bool
) -> dict[str, torch.Tensor]:
    """The numbers of the rows of a block, and which of them count or are broken."""
    sums = reduced(block.scores)
    values = numbers_of(sums)
    if quick:
        values["one"] = values["two"] = bounded_by_largest(sums, block.scores.shape[-1])
        values |= {constant_key(p): values["one"] for p in norms}
    else:
        one, two = local_lipschitz(_clean(block.scores, values["kept"]), p=(1, 2))
        values |= {"one": one.value, "two": two.value}
        values |= {constant_key(p): _upper(one, two, p) for p in norms}
    return values | {name: measure(block) for name, measure in more.items()}


def numbers_of(sums: RowSums) -> dict[str, torch.Tensor]:
    """What the sums of rows say besides their constants."""
    broken = torch.isnan(sums.top) | (sums.top == math.inf)
    kept = (sums.top > HIDDEN) & ~broken
    entropy = torch.where(kept, sums.entropy, 0.0)
    return {
        "entropy": entropy,
        "evenness": (entropy / sums.seen.clamp(min=2).log()).clamp(0.0, 1.0),
        "top": 1 / (1 + sums.rest),
        "first": sums.first,
        "range": torch.where(kept, sums.top - sums.lowest, 0.0),
        "score": torch.where(kept, sums.top, 0.0),
        "seen": sums.seen,
        "kept": kept,
        "broken": broken,
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


def _upper(one: Bound, two: Bound, p: float) -> torch.Tensor:
    """‖M‖₁^θ‖M‖₂^(1−θ) with θ = |1 − 2/p|, rounded up; never above ½."""
    first, second = one.upper.double(), two.upper.double()
    found: torch.Tensor = interpolate(namespace(first), first, second, p)
    return found.clamp(max=LIMIT)


def _clean(scores: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Replace rows that do not count by zeros, so that they do not stop the others."""
    return scores if bool(kept.all()) else torch.where(kept[..., None], scores, 0.0)
