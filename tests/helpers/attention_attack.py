"""Gradient ascent on the true constant, over tokens and weights, with the bound held fixed."""

from __future__ import annotations

import numpy as np
import torch

from tests.helpers import attention_oracle as oracle


def ascend(score, start, *, steps, rate=0.05):
    """Largest score on the way of Adam from each start; ``score`` takes a list of tensors."""
    best, where = -1.0, None
    parameters = [oracle.tensor(a).clone().requires_grad_(True) for a in start]
    optimiser = torch.optim.Adam(parameters, lr=rate)
    for step in range(steps):
        optimiser.zero_grad()
        value = score(parameters)
        if float(value.detach()) > best:
            best = float(value.detach())
            where = [p.detach().numpy().copy() for p in parameters]
        (-torch.log(value)).backward()
        if not all(torch.isfinite(p.grad).all() for p in parameters):
            break
        for group in optimiser.param_groups:
            group["lr"] = rate * 0.5 * (1 + np.cos(np.pi * step / steps))
        optimiser.step()
    return best, where


def unit(matrix):
    """The matrix, scaled to spectral norm 1."""
    return matrix / torch.linalg.matrix_norm(matrix, 2)


def inside(x, radius=1.0):
    """Tokens, those outside the ball brought back to its surface."""
    return x * torch.clamp(radius / x.norm(dim=1, keepdim=True), max=1.0)


def local_bound(w, x):
    """Theorem attn-local with weights 1 and θ = ‖T‖/‖G‖, in torch, to be differentiated."""
    q, k, v = x @ w["wq"].T, x @ w["wk"].T, x @ w["wv"].T
    p = torch.softmax(q @ k.T, dim=-1)
    spread = v[None] - (p @ v)[:, None]
    g = (q @ w["wk"]).square().sum(-1)
    covariance = torch.einsum("ij,ija,ijb->iab", p, spread, spread)
    kappa = torch.linalg.eigvalsh(w["wv"] @ w["wv"].T + g[:, None, None] * covariance)[:, -1]
    query = torch.einsum("ij,ija,jb->iab", p, spread, k) @ w["wq"]
    t = torch.linalg.matrix_norm(query, 2).square()
    column = kappa @ p
    theta = (t.max() / column.max()).sqrt() + 1e-9
    return ((1 + theta) * column + (1 + 1 / theta) * t).max().sqrt()
