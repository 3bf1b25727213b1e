"""Fair timing of alternatives: interleaved, so that noise hits all, and the best of many."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_times(
    alternatives: Mapping[str, Callable[[], object]], *, repeats: int = 15, budget: float = 20.0
) -> dict[str, float]:
    """Shortest time of each alternative in seconds, after one warm-up call of each."""
    for run in alternatives.values():
        run()
    best = dict.fromkeys(alternatives, float("inf"))
    began = time.perf_counter()
    for _ in range(repeats):
        for name, run in alternatives.items():
            # Several times in a row: the OpenMP workers of the peer before spin for a while.
            for _ in range(4):
                start = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
        if time.perf_counter() - began > budget:
            break
    return best


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
