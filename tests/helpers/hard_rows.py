"""Rows of logits on which gradients and constants tend to go wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def hard_rows(n: int, count: int = 40) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rows of all scales, with ties, near ties, masks, a one-hot row and one masked altogether."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((count, n)) * np.geomspace(0.01, 50, count)[:, None]
    x[::5] = np.round(x[::5])
    if n > 2:
        x[1::5, 1] = -math.inf
        x[3, 0], x[3, 1] = 60.0, 60.0 - 1e-4
    x[6, 0] = 1e4
    x[7] = -math.inf
    return x
