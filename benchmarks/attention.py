"""How tight the bounds for attention are, beside the papers' bounds, on the same random cases.

``python -m benchmarks.attention`` prints the table of docs/attention.md. The truth is the norm of
the derivative by automatic differentiation (tests/attention_oracle.py).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

from taut import attention

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.helpers import attention_oracle as oracle

CASES = 300


def norm(matrix):
    return float(np.linalg.norm(matrix, 2))


def weights(rng, d):
    """Weights, tokens and a scale that runs from flat to peaked attention."""
    wq, wk, wv = rng.normal(size=(3, d, d)) / math.sqrt(d)
    n = int(rng.integers(2, 13))
    return wq * 10 ** rng.uniform(-1, 1), wk, wv, rng.normal(size=(n, d))


def first_local(wq, wk, wv, x, seen):
    """The three terms bounded one by one, as first written down."""
    A = wk.T @ wq
    z = np.where(seen, x @ A.T @ x.T, -np.inf)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    spreads = [np.cov(x.T, aweights=row, bias=True).reshape(x.shape[1], -1) for row in p]
    lam = np.array([norm(c) for c in spreads])
    pulls = np.linalg.norm(x @ A.T, axis=1)
    token = norm(wv) * (1 + norm(A) * lam + np.sqrt(lam) * pulls).max()
    columns = p.sum(axis=0).max(), (lam * pulls**2 @ p).max()
    return norm(wv) * (math.sqrt(columns[0]) + norm(A) * lam.max() + math.sqrt(columns[1])), token


def dot_product(rng, causal):
    wq, wk, wv, x = weights(rng, int(rng.integers(1, 9)))
    n, radius = len(x), np.linalg.norm(x, axis=1).max()
    seen = np.tri(n, dtype=bool) if causal else np.ones((n, n), dtype=bool)
    layer = attention.Layer(wq, wk, wv, scale=1.0)
    full = attention.jacobian(layer, x, mask=seen)
    true = norm(full)
    token = oracle.token_norm(oracle.tensor(full), (x.shape[1], x.shape[1]), tries=30)
    local, token_first = first_local(wq, wk, wv, x, seen)
    a = norm(wk.T @ wq) * radius**2
    return {
        "tokens given: attn-local": true / attention.dot_product(layer, x, mask=seen).upper,
        "tokens given: three terms apart": true / local,
        "ball: attn-ball": true / attention.dot_product_ball(layer, radius, n=n, mask=seen).upper,
        "ball: three terms apart": true / (norm(wv) * (math.sqrt(n) + a * (1 + math.sqrt(n)))),
        "ball: Castin et al. 2024": true / attention.castin_ball(layer, radius, n=n).upper,
        "largest token, given: attn-token": token
        / attention.dot_product(layer, x, mask=seen, norm="token").upper,
        "largest token, given: three terms apart": token / token_first,
    }


def many_heads(rng):
    heads, width, n = 4, 4, int(rng.integers(2, 13))
    d = heads * width
    wq, wk, wv, wo = rng.normal(size=(4, d, d)) / math.sqrt(d)
    wq = wq * 10 ** rng.uniform(-1, 1)
    x = rng.normal(size=(n, d))
    layer = attention.Layer(wq, wk, wv, wo, heads=heads)
    true = norm(attention.jacobian(layer, x))
    alone = [
        attention.dot_product(attention.Layer(h.wq, h.wk, h.wv, scale=layer.scale), x).upper
        for h in layer.heads
    ]
    return {
        "4 heads and Wo: attn-local": true / attention.dot_product(layer, x).upper,
        "4 heads and Wo: heads, then Wo": true / (math.hypot(*alone) * norm(wo)),
    }


def cosine(rng):
    wq, wk, wv, x = weights(rng, int(rng.integers(1, 9)))
    x = x * 10 ** rng.uniform(-1, 1)
    n, o = len(x), {"scale": float(10 ** rng.uniform(-1, 1.3)), "nu": 1.0, "epsilon": 1.0}
    w = [oracle.tensor(a) for a in (wq, wk, wv)]
    full = oracle.derivative(lambda z: oracle.cosine(*w, z, **o), oracle.tensor(x))
    true = float(oracle.spectral(full))
    first = o["scale"] * (norm(wq) + math.sqrt(n) * norm(wk)) + math.sqrt(n) * norm(wv)
    return {
        "cosine attention: scsa-cov": true / attention.cosine(wq, wk, wv, n=n, **o).upper,
        "cosine attention: three terms apart": true / first,
        "cosine attention: Nair 2025, theorem 2": true
        / attention.cosine(wq, wk, wv, n=n, form="nair", **o).upper,
    }


def neighbours(rng):
    wq, _, wv, x = weights(rng, int(rng.integers(1, 9)))
    w = [oracle.tensor(a) for a in (wq, wv)]
    full = oracle.derivative(lambda z: oracle.neighbours(*w, None, z), oracle.tensor(x))
    true = float(oracle.spectral(full))
    n = len(x)
    return {
        "L2 attention: l2-attention": true / attention.l2(wq, wv, n=n).upper,
        "L2 attention: Kim et al. 2021, corrected": true
        / attention.l2(wq, wv, n=n, form="kim").upper,
    }


def affinity(rng):
    keys = rng.normal(size=(int(rng.integers(2, 13)), int(rng.integers(1, 9))))
    query = rng.normal(size=(1, keys.shape[1])) * 10 ** rng.uniform(-1, 0.5)
    true = attention.affinity(keys, scale=1.0, queries=query).value[0]
    return {
        "weights: affinity-diameter": true / attention.affinity(keys, scale=1.0).upper,
        "weights: affinity": true / attention.affinity(keys, scale=1.0, form="centred").upper,
        "weights: Zhang et al. 2021, theorem 2.1": true
        / attention.affinity(keys, scale=1.0, form="zhang").upper,
    }


def main() -> None:
    found: dict[str, list[float]] = {}
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        for case in (dot_product(rng, seed % 2 == 1), many_heads(rng), cosine(rng), neighbours(rng),
                     affinity(rng)):  # fmt: skip
            for name, ratio in case.items():
                found.setdefault(name, []).append(ratio)
    print("| bound | median | smallest | largest |")
    print("|---|---|---|---|")
    for name, ratios in found.items():
        print(f"| {name} | {np.median(ratios):.3f} | {min(ratios):.4f} | {max(ratios):.3f} |")


if __name__ == "__main__":
    main()
