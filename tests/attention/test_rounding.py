"""Attention bounds against extended precision: rounding never brings one below the truth."""

from __future__ import annotations

import numpy as np
import pytest

from taut import attention

WIDE = np.longdouble
pytestmark = pytest.mark.skipif(
    np.finfo(WIDE).eps > 1e-18, reason="this machine has no extended precision"
)


def derivative(wq, wk, wv, x, bq, bk, scale, cap):
    """The derivative of one head of self-attention, written out in extended precision."""
    wq, wk, wv, x, bq, bk = (a.astype(WIDE) for a in (wq, wk, wv, x, bq, bk))
    q, k, v = x @ wq.T + bq, x @ wk.T + bk, x @ wv.T
    z = WIDE(scale) * (q @ k.T)
    slope = np.ones_like(z)
    if cap is not None:
        slope = 1 - np.tanh(z / WIDE(cap)) ** 2
        z = WIDE(cap) * np.tanh(z / WIDE(cap))
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    n, d = x.shape
    found = np.zeros((n, len(wv), n, d), WIDE)
    for i in range(n):
        spread = v - p[i] @ v
        found[i, :, i] += WIDE(scale) * ((spread * (p[i] * slope[i])[:, None]).T @ k) @ wq
        pull = WIDE(scale) * (q[i] @ wk)
        for j in range(n):
            found[i, :, j] += p[i, j] * (wv + slope[i, j] * np.outer(spread[j], pull))
    return found.reshape(n * len(wv), n * d)


def norm(matrix):
    """The spectral norm from below: power steps in extended precision after an SVD."""
    size = np.abs(matrix).max()
    v = np.linalg.svd((matrix / size).astype(float))[2][0].astype(WIDE)
    for _ in range(3):
        v = matrix.T @ (matrix @ v) / size
        v /= np.sqrt((v * v).sum())
    return np.sqrt(((matrix @ v) ** 2).sum())


@pytest.mark.parametrize("seed", range(80))
def test_rounding_goes_outward(seed):
    """Sizes from 1e-3 to 1e3, ties between tokens, saturated caps, scores beyond 1e6."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    wq, wk, wv = (rng.normal(size=(d, d)) * 10 ** rng.uniform(-3, 3) for _ in range(3))
    bq, bk = (rng.normal(size=d) * 10 ** rng.uniform(-3, 3) for _ in range(2))
    x = rng.normal(size=(n, d)) * 10 ** rng.uniform(-2, 2)
    if seed % 3 == 0:
        x = x[rng.integers(0, n, size=n)] + 1e-9 * x
    scale = float(10 ** rng.uniform(-4, 1))
    cap = None if seed % 2 else float(10 ** rng.uniform(-2, 2))
    true = norm(derivative(wq, wk, wv, x, bq, bk, scale, cap))
    layer = attention.Layer(wq, wk, wv, bq=bq, bk=bk, scale=scale, softcap=cap)
    exact = attention.dot_product(layer, x, exact=True)
    radius = float(np.linalg.norm(x, axis=1).max()) * (1 + 1e-15)
    assert exact.lower <= true <= exact.upper
    assert true <= attention.dot_product(layer, x).upper
    assert true <= attention.dot_product_ball(layer, radius, n=n).upper
