"""Search for two strategies that the double softmax of a game brings far apart."""

from __future__ import annotations

import numpy as np

APART = 1e-7  # of nearer strategies rounding is all that is seen


def softmax(z):
    weights = np.exp(z - z.max())
    return weights / weights.sum()


def both(A, B, tau, y):
    """T(y) of a general-sum game; A → −A gives the double softmax of a zero-sum one."""
    return softmax(B.T @ softmax(A @ y / tau) / tau)


def ratio(A, B, tau, y, z, p):
    return np.linalg.norm(both(A, B, tau, y) - both(A, B, tau, z), p) / np.linalg.norm(y - z, p)


def steepest(A, B, tau, p, rng, tries=40):
    """Largest ratio found by random strategies, pure ones, and hill climbing from the best."""
    m = A.shape[1]
    best, pair = 0.0, None
    for _ in range(tries):
        y, z = rng.dirichlet(np.full(m, 10 ** rng.uniform(-1.5, 1)), size=2)
        if rng.random() < 0.5:
            z = np.clip(y + 1e-4 * (rng.normal(size=m)), 1e-9, None)
            z /= z.sum()
        if np.abs(y - z).max() > APART and ratio(A, B, tau, y, z, p) > best:
            best, pair = ratio(A, B, tau, y, z, p), (y, z)
    for k in range(200 if pair is not None else 0):  # None: nothing changes at all
        y, z = (np.clip(s * np.exp(0.5 * 0.98**k * rng.normal(size=m)), 1e-12, None) for s in pair)
        y, z = y / y.sum(), z / z.sum()
        if np.abs(y - z).max() > APART and ratio(A, B, tau, y, z, p) > best:
            best, pair = ratio(A, B, tau, y, z, p), (y, z)
    return best
