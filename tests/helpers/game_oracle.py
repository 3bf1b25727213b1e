"""Games in arbitrary precision: true gaps and true equilibria, and games that are hard."""

from __future__ import annotations

import numpy as np
from flint import arb, arb_mat, ctx

BITS = 400


def _softmax(logits: list[arb]) -> list[arb]:
    top = max(float(value.mid()) for value in logits)
    weights = [(value - top).exp() for value in logits]
    total = sum(weights, arb(0))
    return [weight / total for weight in weights]


def _exactly(p: np.ndarray) -> list[arb]:
    """The strategy that floating-point weights stand for: themselves over their sum."""
    weights = [arb(float(value)) for value in p]
    total = sum(weights, arb(0))
    return [weight / total for weight in weights]


def _answers(A: np.ndarray, tau: float, x: list[arb], y: list[arb]) -> tuple[list[arb], list[arb]]:
    rows = [[arb(float(value)) for value in row] for row in A]
    n, m = A.shape
    costs = [sum((rows[i][j] * y[j] for j in range(m)), arb(0)) for i in range(n)]
    gains = [sum((rows[i][j] * x[i] for i in range(n)), arb(0)) for j in range(m)]
    return _softmax([-c / arb(tau) for c in costs]), _softmax([g / arb(tau) for g in gains])


def _divergence(p: list[arb], q: list[arb]) -> arb:
    pairs = zip(p, q, strict=True)
    return sum((a * (a.log() - b.log()) for a, b in pairs if a != 0), arb(0))


def true_gap(A: np.ndarray, tau: float, x: np.ndarray, y: np.ndarray) -> float:
    """The duality gap of floating-point strategies, rounded to nearest."""
    ctx.prec = BITS
    p, q = _exactly(x), _exactly(y)
    best_x, best_y = _answers(A, tau, p, q)
    return float((arb(tau) * (_divergence(p, best_x) + _divergence(q, best_y))).mid())


def equilibrium(
    A: np.ndarray, tau: float, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The equilibrium near a good start by Newton's method, and the value, to double precision."""
    ctx.prec = BITS
    n, m = A.shape
    tiny = np.finfo(float).tiny
    u = [value.log() for value in _exactly(np.maximum(x, tiny))]
    v = [value.log() for value in _exactly(np.maximum(y, tiny))]
    B = [[arb(float(value)) / arb(tau) for value in row] for row in A]
    for _ in range(60):
        p, q = _softmax(u), _softmax(v)
        best_x, best_y = _answers(A, tau, p, q)
        log_p, log_q = [w.log() for w in p], [w.log() for w in q]
        residual = [b.log() - a for a, b in zip(log_p, best_x, strict=True)]
        residual += [b.log() - a for a, b in zip(log_q, best_y, strict=True)]
        J = arb_mat(n + m, n + m)
        for i in range(n + m):
            J[i, i] = 1
        Bq = [sum((B[i][j] * q[j] for j in range(m)), arb(0)) for i in range(n)]
        Bp = [sum((B[i][j] * p[i] for i in range(n)), arb(0)) for j in range(m)]
        for i in range(n):
            for j in range(m):
                J[i, n + j] = (B[i][j] - Bq[i]) * q[j]
                J[n + j, i] = -(B[i][j] - Bp[j]) * p[i]
        step = J.solve(arb_mat(n + m, 1, residual))
        u = [arb((log_p[i] + step[i, 0]).mid()) for i in range(n)]
        v = [arb((log_q[j] + step[n + j, 0]).mid()) for j in range(m)]
        if max(abs(float(step[i, 0].mid())) for i in range(n + m)) < 1e-60:
            break
    else:
        raise AssertionError("the oracle did not converge")
    p, q = _softmax(u), _softmax(v)
    mean = sum((p[i] * arb(float(A[i, j])) * q[j] for i in range(n) for j in range(m)), arb(0))
    entropy = [-sum((w * w.log() for w in s), arb(0)) for s in (p, q)]
    value = mean - arb(tau) * entropy[0] + arb(tau) * entropy[1]
    return _floats(p), _floats(q), float(value.mid())


def _floats(p: list[arb]) -> np.ndarray:
    return np.array([float(value.mid()) for value in p])


def hard_games(seed: int = 0) -> dict[str, np.ndarray]:
    """Games of all kinds: degenerate, dominated, duplicated, thin, extreme, low rank."""
    rng = np.random.default_rng(seed)
    normal = rng.normal
    skew = normal(size=(5, 5))
    return {
        "gaussian": normal(size=(5, 4)),
        "signs": rng.choice([-1.0, 1.0], size=(6, 5)),
        "integers": rng.integers(0, 3, size=(4, 6)).astype(float),
        "skew": skew - skew.T,
        "duplicated": np.repeat(normal(size=(2, 4)), 3, axis=0),
        "dominated": np.vstack([normal(size=(2, 5)), normal(size=(2, 5)) + 5]),
        "rank one": np.outer(normal(size=5), normal(size=6)),
        "one row": normal(size=(1, 6)),
        "one column": normal(size=(6, 1)),
        "one cell": np.array([[3.0]]),
        "constant": np.full((3, 4), 7.0),
        "no interaction": normal(size=(4, 1)) + normal(size=(1, 5)),
        "huge": 1e12 * normal(size=(4, 4)),
        "tiny": 1e-12 * normal(size=(4, 4)),
        "offset": 1e12 + normal(size=(4, 5)),
        "mixed sizes": normal(size=(4, 4)) * 10.0 ** rng.integers(-6, 7, size=(4, 4)),
        "zeros": np.zeros((3, 3)),
    }
