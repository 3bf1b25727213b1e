"""What a worker has done in one area so far, and the file that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.case import packed, unpacked
from fuzz.pool import Pool
from taut._base.files import write_whole


@dataclass
class Tally:
    """Counts of one area, with the cases from which the next ones are made."""

    rounds: int = 0
    cases: int = 0
    broken: int = 0
    seconds: float = 0.0
    worst: float = 0.0
    worst_kind: str = ""
    pool: Pool = field(default_factory=Pool)

    def numbers(self) -> dict[str, Any]:
        """All but the cases."""
        found = {name: value for name, value in self.__dict__.items() if name != "pool"}
        return {**found, "ratios": [ratio for ratio, _ in self.pool.entries]}


def tally_file(folder: Path, area: str, worker: int) -> Path:
    """Where a worker keeps its tally of an area."""
    return folder / f"{area.replace(' ', '-')}-{worker}.npz"


def save(tally: Tally, file: Path, seed: int) -> None:
    """Write the tally whole."""
    cases = [case for _, case in tally.pool.entries]
    write_whole(packed(cases, {"seed": seed, **tally.numbers()}), file)


def load(file: Path, seed: int | None = None) -> Tally:
    """The tally of a file, an empty one where there is none."""
    if not file.exists():
        return Tally()
    cases, numbers = unpacked(file.read_bytes())
    kept = numbers.pop("seed")
    if seed is not None and kept != seed:
        raise ValueError(
            f"{file} is of seed {kept}, not {seed}: use another folder, or the seed it began with"
        )
    pool = Pool(list(zip(numbers.pop("ratios"), cases, strict=True)))
    return Tally(**numbers, pool=pool)


def together(tallies: list[Tally]) -> Tally:
    """The sum of what several workers did."""
    worst = max(tallies, key=lambda tally: tally.worst, default=Tally())
    found = Tally(worst=worst.worst, worst_kind=worst.worst_kind)
    for tally in tallies:
        found.rounds += tally.rounds
        found.cases += tally.cases
        found.broken += tally.broken
        found.seconds += tally.seconds
    return found
