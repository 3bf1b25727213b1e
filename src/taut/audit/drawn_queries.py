"""Draw the queries that are measured where measuring all of them would take too long.

The draw depends on the seed, the number of the sample and its queries alone, so that any number of
processes draws the same. All heads and layers with as many queries measure the same ones.
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
    most = settings.queries_of(queries)
    if most >= queries:
        return None
    real = None if rows.real is None else rows.real.cpu().numpy()
    chosen = np.zeros(rows.shape, dtype=bool)
    for index, sample in enumerate(samples):
        if sample < 0:
            chosen[index] = True
            continue
        source = np.random.default_rng((settings.seed, DRAWS, int(sample)))
        order = source.permutation(queries)
        for head in range(heads):
            # Padding is passed over, so that every head has as many rows as it can.
            there = order if real is None else order[real[index, head, order]]
            chosen[index, head, there[:most]] = True
    return chosen
