"""Draw the queries that are measured where measuring all of them would take too long.

The draw depends on the seed, the number of the sample and its queries alone, so that any number of
processes draws the same. Padding is not among the queries: how long the other samples of a batch
are changes nothing. All heads and layers with as many queries measure the same ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut._base.settings import AuditSettings
from taut.models import AttentionRows

Array = np.ndarray[Any, np.dtype[Any]]
DRAWS = 7  # tells these draws from others with the same seed


def drawn_queries(rows: AttentionRows, samples: Array, settings: AuditSettings) -> Array | None:
    """Which rows are measured, (samples, heads, queries); None for all.

    ``samples`` are the numbers of the samples. Rows that belong to no sample are all measured.
    """
    _, heads, queries = rows.shape
    if settings.queries_of(queries) >= queries:
        return None
    real = np.ones(rows.shape, dtype=bool) if rows.real is None else rows.real.cpu().numpy()
    chosen = np.zeros(rows.shape, dtype=bool)
    for index, sample in enumerate(samples):
        if sample < 0:
            chosen[index] = True
            continue
        draws: dict[int, Array] = {}  # by the number of queries, which most heads share
        for head in range(heads):
            there = np.flatnonzero(real[index, head])
            if len(there) not in draws:
                draws[len(there)] = _draw(len(there), int(sample), settings)
            chosen[index, head, there[draws[len(there)]]] = True
    return chosen


def _draw(count: int, sample: int, settings: AuditSettings) -> Array:
    """Some of so many queries."""
    source = np.random.default_rng((settings.seed, DRAWS, sample))
    return source.permutation(count)[: settings.queries_of(count)]
