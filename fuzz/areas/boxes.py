"""Constants and probabilities in a box of logits, against points of the box."""

from __future__ import annotations

import math

import numpy as np

import taut
from fuzz import softmax_truth as truth
from fuzz.area import Area
from fuzz.case import Array, Case
from fuzz.softmax_rows import block, length, mutants

POINTS = 12  # of each box
P = (1.0, 2.0, 3.0, math.inf)


class Boxes(Area):
    """The largest constant found in a box over its bound, and probabilities over their interval."""

    name = "boxes"
    goal = 100_000
    unit = "rows"
    ratio = "largest constant found in the box over the upper side"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A block of rows, a radius and an exponent."""
        n = length(rng, 128)
        kind, x = block(rng, max(1, 1024 // n), n, "float64")
        radius = float(10 ** rng.uniform(-6, 1.5)) if rng.random() < 0.95 else 0.0
        scale = float(10 ** rng.uniform(-1, 1)) if rng.random() < 0.3 else 1.0
        settings = {"kind": kind, "radius": radius, "scale": scale, "p": float(rng.choice(P))}
        return Case({"x": x}, {**settings, "seed": int(rng.integers(1 << 31))})

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """Mutants of a row, with a radius nearby."""
        row = case["x"][0]
        radius = case["radius"] * float(np.exp(rng.standard_normal() * 0.3))
        x = mutants(row, rng, max(2, 1024 // len(row)))
        return case.but(x=x, radius=radius, seed=int(rng.integers(1 << 31)))

    def judge(self, case: Case) -> Array:
        """Every point of the box that is tried stays below the bounds of the box."""
        x, radius, scale, p = (case[name] for name in ("x", "radius", "scale", "p"))
        bound = taut.local_lipschitz(x, p, radius=radius, scale=scale)
        low, high = taut.probability_intervals(x, radius, scale=scale)
        points = inside(x, radius, scale, np.random.default_rng(case["seed"]))
        found = taut.local_lipschitz(points, p, scale=scale).lower.max(axis=0)
        with np.errstate(all="ignore"):
            ratio = np.where(found > 0, found / bound.upper, 0.0)
        ratio = np.where(bound.lower <= bound.upper, ratio, np.nan)
        s = truth.probabilities(points, scale)
        # Those that underflow are above 0, and 0 is not below them.
        outside = (s * (1 + 1e-15) < low) | (s * (1 - 1e-15) > high)
        return np.where(outside.any(axis=(0, 2)), np.nan, ratio)

    def member(self, case: Case, index: int) -> Case:
        """One row; its points are drawn anew."""
        return case.row(index)


def inside(x: Array, radius: float, scale: float, rng: np.random.Generator) -> Array:
    """Points of the boxes: the top against the others, at corners and before, and random ones."""
    top = x == x.max(axis=-1, keepdims=True)
    away = np.where(top, -1.0, 1.0)
    signs = [away, -away, *(rng.choice([-1.0, 1.0], x.shape) for _ in range(4))]
    signs += [away * rng.random((len(x), 1)) for _ in range(POINTS - 8)]
    signs += [rng.uniform(-1, 1, x.shape) for _ in range(2)]
    far = np.where(np.isfinite(x), x, 0.0)
    moved = far + radius * np.stack(signs)
    for _ in range(3):  # rounding may have left the box
        off = np.abs(moved.astype(truth.WIDE) - far) > radius
        moved = np.where(off, np.nextafter(moved, far), moved)
    moved = np.where(np.abs(moved.astype(truth.WIDE) - far) > radius, far, moved)
    return np.where(np.isfinite(x), moved, -np.inf)
