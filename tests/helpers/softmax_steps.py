"""Rows of logits with steps away from them, and what softmax does on the way."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import taut

# A row, a direction and the length of the step.
rows = st.integers(2, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-1, 1), min_size=n, max_size=n),
        st.lists(st.floats(-1, 1), min_size=n, max_size=n),
        st.floats(-2, 2).map(lambda e: 10.0**e),
    )
)


def change(x, d, scale=1.0):
    """softmax(x + d) − softmax(x) in extended precision."""
    wide = [np.asarray(v, dtype=np.longdouble) for v in (x, d)]
    values = []
    for z in (wide[0] + wide[1], wide[0]):
        weights = np.exp(scale * (z - np.max(z)))
        values.append(weights / weights.sum())
    return (values[0] - values[1]).astype(np.float64)


def dense(x, scale=1.0):
    return taut.jacobian(np.asarray(x, dtype=np.float64), scale=scale)
