"""Bounds of whole steps of the logits, and of logits of bounded spread."""

from __future__ import annotations

import math

import numpy as np

import taut
from fuzz import softmax_truth as truth
from fuzz.area import Area
from fuzz.case import Array, Case
from fuzz.softmax_rows import block, length, mutants

P = (1.0, 1.5, 2.0, 3.0, math.inf)


class Steps(Area):
    """The change of softmax over the bound of the step, from points that are chosen against it."""

    name = "steps"
    goal = 100_000
    unit = "steps"
    ratio = "change of softmax over its bound"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A block of steps."""
        n = max(2, length(rng, 128))
        kind, d = block(rng, max(1, 2048 // n), n, "float64")
        d = np.where(np.isfinite(d), d, 0.0) * 10 ** rng.uniform(-8, 0)
        scale = float(10 ** rng.uniform(-1, 1)) if rng.random() < 0.3 else 1.0
        settings = {"kind": kind, "scale": scale, "p": float(rng.choice(P))}
        return Case({"x": d}, {**settings, "seed": int(rng.integers(1 << 31))})

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """Steps near one of them."""
        d = mutants(case["x"][0], rng, max(2, 2048 // case["x"].shape[1]))
        d = np.where(np.isfinite(d), d, 0.0)
        return case.but(x=d, seed=int(rng.integers(1 << 31)))

    def judge(self, case: Case) -> Array:
        """The larger of the ratios of the step and of the constant for so large a spread."""
        d, scale, p = case["x"], case["scale"], case["p"]
        rng = np.random.default_rng(case["seed"])
        z = starts(d, rng)
        found = truth.norm(truth.change(z, d, scale), p).max(axis=0)
        upper = np.asarray(taut.step_bound(d, p, scale=scale).upper)
        with np.errstate(all="ignore"):
            ratio = np.where(found > 0, found * (1 - truth.DOUBT) / upper, 0.0).astype(float)
        spread = float(np.ptp(d[0]))
        most = taut.bounded_logits_lipschitz(d.shape[1], spread=spread, p=p, scale=scale).upper
        here = float(np.max(taut.local_lipschitz(d[0], p, scale=scale).lower))
        ratio[0] = max(ratio[0], here / most if here > 0 else 0.0)
        return ratio

    def member(self, case: Case, index: int) -> Case:
        """One step; its points are drawn anew."""
        return case.row(index)


def starts(d: Array, rng: np.random.Generator) -> Array:
    """Logits from which a step changes much: two classes of equal weight, the ends of the step."""
    far = np.full(d.shape, -200.0)
    ends = (d == d.max(axis=-1, keepdims=True)) | (d == d.min(axis=-1, keepdims=True))
    pair = np.where(ends, -d / 2, far)
    near = pair + rng.standard_normal(d.shape) * 10 ** rng.uniform(-6, 0)
    return np.stack([pair, near, -d / 2, rng.standard_normal(d.shape), np.zeros(d.shape)])
