"""One process of the campaign: round after round, the area that has had the least time."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fuzz.area import Area
from fuzz.case import Array, Case, packed
from fuzz.tally import Tally, load, save, tally_file
from taut._base.files import write_whole

SAVE_EVERY = 20.0  # seconds
SHOWN = 5  # broken cases of an area that are printed; all are kept


class Worker:
    """Rounds of several areas, seeded by area, worker and round, so that they can be resumed."""

    def __init__(self, areas: Sequence[Area], seed: int, number: int, folder: Path) -> None:
        self.areas, self.seed, self.number, self.folder = areas, seed, number, folder
        self.tallies = {
            area.name: load(tally_file(folder, area.name, number), seed) for area in areas
        }

    def run(self, seconds: float, rounds: int | None = None, share: int = 1) -> None:
        """Work until the time is over, or for so many rounds; ``share`` workers share the goals."""
        began = saved = time.monotonic()
        done = 0
        while time.monotonic() - began < seconds and (rounds is None or done < rounds):
            self.one_round(self._next(share))
            done += 1
            if time.monotonic() - saved > SAVE_EVERY:
                self.save()
                saved = time.monotonic()
        self.save()

    def save(self) -> None:
        """Keep everything that the next rounds depend on."""
        for name, tally in self.tallies.items():
            save(tally, tally_file(self.folder, name, self.number), self.seed)

    def _next(self, share: int) -> Area:
        """Of the areas that have not reached their goal, or else of all, that of the least time."""
        short = [a for a in self.areas if self.tallies[a.name].cases < a.goal / share]
        return min(short or self.areas, key=lambda area: self.tallies[area.name].seconds)

    def one_round(self, area: Area) -> None:
        """Make a case, judge it, and learn from it."""
        tally = self.tallies[area.name]
        began = time.process_time()
        code = int.from_bytes(hashlib.sha256(area.name.encode()).digest()[:4], "little")
        rng = np.random.default_rng([self.seed, code, self.number, tally.rounds])
        tally.rounds += 1
        old = tally.pool.draw(rng) if rng.random() < 0.5 else None
        case = area.fresh(rng) if old is None else area.changed(old, rng)
        try:
            ratios = np.atleast_1d(np.asarray(area.judge(case), dtype=float))
        except Exception as error:  # what taut does not expect is as bad as a wrong number
            text = "".join(traceback.format_exception(error))
            ratios = np.array([np.nan])
            self._report(area, case, text)
        else:
            self._learn(area, case, ratios)
        tally.cases += len(ratios)
        tally.broken += int((~(ratios <= 1)).sum())
        tally.seconds += time.process_time() - began

    def _learn(self, area: Area, case: Case, ratios: Array) -> None:
        tally = self.tallies[area.name]
        index = int(np.argmax(np.where(np.isnan(ratios), np.inf, ratios)))
        worst = area.improved(area.member(case, index))
        ratio = float(ratios[index])
        if not ratio <= 1:
            self._report(area, worst, f"the ratio is {ratio}")
            return
        if ratio > tally.worst:
            tally.worst, tally.worst_kind = ratio, str(worst.settings.get("kind", ""))
        tally.pool.offer(ratio, worst)

    def _report(self, area: Area, case: Case, why: str) -> None:
        """Keep a case that broke a bound, and say how to see it again."""
        place = self.folder / "broken"
        place.mkdir(exist_ok=True)
        tally: Tally = self.tallies[area.name]
        name = f"{area.name.replace(' ', '-')}-{self.number}-{tally.rounds}.npz"
        write_whole(packed([case], {"area": area.name, "why": why}), place / name)
        if tally.broken < SHOWN:
            print(f"BROKEN {area.name}: {why.strip()}", flush=True)
            print(f"  python -m fuzz --again {place / name}", flush=True)
