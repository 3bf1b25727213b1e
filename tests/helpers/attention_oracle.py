"""Attention written plainly in torch, its derivative by autodiff, and random layers."""

from __future__ import annotations

import math

import numpy as np
import torch

torch.set_num_threads(1)


def tensor(a):
    return None if a is None else torch.as_tensor(np.asarray(a), dtype=torch.float64)


def attend(w, x, y, *, heads=1, kv_heads=None, scale=1.0, softcap=None, mask=None, bias=None,
           rotations=None):  # fmt: skip
    """Dot-product attention; w holds wq, wk, wv and perhaps wo, bq, bk, bv."""
    groups = kv_heads or heads
    outputs = []
    parts = [
        torch.chunk(y @ w[f"w{c}"].T + w.get(f"b{c}", 0.0), k, dim=-1) if c != "q" else
        torch.chunk(x @ w["wq"].T + w.get("bq", 0.0), k, dim=-1)
        for c, k in (("q", heads), ("k", groups), ("v", groups))
    ]  # fmt: skip
    for h in range(heads):
        q, k, v = parts[0][h], parts[1][h * groups // heads], parts[2][h * groups // heads]
        if rotations is not None:
            q = torch.einsum("iab,ib->ia", rotations[: len(q)], q)
            k = torch.einsum("jab,jb->ja", rotations[: len(k)], k)
        z = scale * q @ k.T
        if softcap is not None:
            z = softcap * torch.tanh(z / softcap)
        if bias is not None:
            z = z + (bias[h] if bias.ndim == 3 else bias)
        if mask is not None:
            z = z.masked_fill(~mask, -math.inf)
        outputs.append(torch.softmax(z, dim=-1) @ v)
    out = torch.cat(outputs, dim=-1)
    return out @ w["wo"].T if "wo" in w else out


def cosine(wq, wk, wv, x, *, scale, nu, epsilon, mask=None):
    q, k, v = (
        u / torch.sqrt((u * u).sum(-1, keepdim=True) + epsilon)
        for u in (x @ wq.T, x @ wk.T, x @ wv.T)
    )
    z = scale * q @ k.T
    if mask is not None:
        z = z.masked_fill(~mask, -math.inf)
    return nu * torch.softmax(z, dim=-1) @ v


def neighbours(wq, wv, wo, x, heads=1):
    """L2 self-attention of Kim et al., equation 5 and after, weights (outputs, inputs)."""
    outputs = []
    for q, v in zip(torch.chunk(wq, heads), torch.chunk(wv, heads), strict=True):
        root = math.sqrt(q.shape[0])
        u = x @ q.T
        p = torch.softmax(-((u[:, None] - u[None]) ** 2).sum(-1) / root, dim=-1)
        outputs.append(p @ x @ (q.T @ q / root) @ v.T)
    out = torch.cat(outputs, dim=-1)
    return out if wo is None else out @ wo.T


def derivative(function, *points):
    """Matrix of the derivative, output flattened against all points, side by side."""
    found = torch.func.jacrev(function, argnums=tuple(range(len(points))))(*points)
    rows = function(*points).numel()
    return torch.cat([block.reshape(rows, -1) for block in found], dim=1)


def spectral(matrix):
    return torch.linalg.matrix_norm(matrix, 2)


def token_norm(matrix, widths, *, tries=200):
    """Lower bound on the norm of a derivative between largest-token norms, by ascent."""
    rows, columns = widths
    blocks = matrix.reshape(-1, rows, matrix.shape[1] // columns, columns)
    best = 0.0
    for i in range(len(blocks)):  # one output token at a time
        u = torch.linalg.svd(blocks[i].reshape(rows, -1))[0][:, 0]
        for _ in range(tries):
            pulled = torch.einsum("a,ajb->jb", u, blocks[i])
            move = pulled / pulled.norm(dim=1, keepdim=True).clamp_min(1e-300)
            image = torch.einsum("ajb,jb->a", blocks[i], move)
            value = float(image.norm())
            if value <= best * (1 + 1e-13) and best > 0:
                best = max(best, value)
            u = image / image.norm().clamp_min(1e-300)
        best = max(best, value)
    return best


def random_layer(rng, *, cross=False, heads=None):
    """Weights, keyword options, tokens: everything at random, peaked and flat."""
    heads = heads or int(rng.choice([1, 1, 2, 4]))
    groups = int(rng.choice([g for g in (1, 2, 4) if heads % g == 0]))
    d, width, out = int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    inner = int(rng.integers(1, 9)) if cross else d
    n = int(rng.integers(1, 13))
    m = int(rng.integers(1, 13)) if cross else n
    size = 10 ** rng.uniform(-1.5, 1)
    w = {
        "wq": rng.normal(size=(heads * width, d)) * size,
        "wk": rng.normal(size=(groups * width, inner)),
        "wv": rng.normal(size=(groups * out, inner)),
    }
    if rng.random() < 0.5:
        w["wo"] = rng.normal(size=(int(rng.integers(1, 7)), heads * out))
    if rng.random() < 0.5:
        w["bq"], w["bk"] = rng.normal(size=heads * width), rng.normal(size=groups * width)
        w["bv"] = rng.normal(size=groups * out)
    options = {"heads": heads, "kv_heads": groups, "scale": float(10 ** rng.uniform(-1, 0.5))}
    if rng.random() < 0.4:
        options["softcap"] = float(10 ** rng.uniform(-1, 1))
    place = {}
    if rng.random() < 0.3:
        place["bias"] = rng.normal(size=(heads, n, m) if rng.random() < 0.5 else (n, m)) * 2
    if rng.random() < 0.3:
        mask = rng.random((n, m)) < 0.6
        mask[np.arange(n), rng.integers(0, m, size=n)] = True
        place["mask"] = mask
    if rng.random() < 0.3:
        place["rotations"] = np.stack(
            [np.linalg.qr(rng.normal(size=(width, width)))[0] for _ in range(max(n, m))]
        )
    x = rng.normal(size=(n, d)) * 10 ** rng.uniform(-1, 0.5)
    y = rng.normal(size=(m, inner)) * 10 ** rng.uniform(-1, 0.5) if cross else None
    return w, options, place, x, y


def run(w, options, place, x, y=None):
    """The oracle's function and points for what ``random_layer`` gave."""
    weights = {name: tensor(value) for name, value in w.items()}
    extra = {name: tensor(value) for name, value in place.items() if name != "mask"}
    if place.get("mask") is not None:
        extra["mask"] = torch.as_tensor(place["mask"])
    if y is None:
        return (lambda a: attend(weights, a, a, **options, **extra)), (tensor(x),)
    return (lambda a, b: attend(weights, a, b, **options, **extra)), (tensor(x), tensor(y))
