"""The cases that came nearest to breaking a bound, from which the generator learns."""

from __future__ import annotations

import numpy as np

from fuzz.case import Case

KEPT = 4  # of each kind


class Pool:
    """The worst cases of each kind, with their ratios."""

    def __init__(self, entries: list[tuple[float, Case]] | None = None) -> None:
        self.entries = entries or []

    def offer(self, ratio: float, case: Case) -> None:
        """Keep a case if it is among the worst of its kind."""
        kind = case.settings.get("kind")
        same = [entry for entry in self.entries if entry[1].settings.get("kind") == kind]
        if len(same) >= KEPT:
            least = min(same, key=lambda entry: entry[0])
            if ratio <= least[0]:
                return
            self.entries = [entry for entry in self.entries if entry is not least]
        self.entries.append((ratio, case))

    def draw(self, rng: np.random.Generator) -> Case | None:
        """One of the cases, the worse the more likely; None while there are none."""
        if not self.entries:
            return None
        order = sorted(self.entries, key=lambda entry: -entry[0])
        # Half of the draws fall on the first sixth or so, and none is forgotten.
        place = int(len(order) * rng.random() ** 2.5)
        return order[place][1]
