"""The exact constants in l1, l2 and l∞: both sides of every row, in every way to ask for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

import taut
from fuzz import softmax_check as check
from fuzz.area import Area
from fuzz.arrays import BACKENDS, DTYPES, LAYOUTS, in_backend, laid_out, rounded, stored, traced
from fuzz.case import Array, Case
from fuzz.softmax_rows import block, length, mutants

ENTRIES = 1 << 15  # of a block of rows
# Libraries compile traced code anew for every shape, so that few are asked for.
TRACED = ((256, 2), (256, 7), (64, 64), (16, 300))


class ExactConstants(Area):
    """Sides of λ‖M‖₁, λ‖M‖₂ and λ‖M‖_∞ against extended precision, and against Arb where close."""

    name = "exact constants"
    goal = 10_000_000
    unit = "rows"
    ratio = "error of the value over the error that its sides allow"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A block of rows of one kind and length."""
        backend = str(rng.choice(BACKENDS, p=[0.5, 0.25, 0.15, 0.05, 0.05]))
        dtype = str(rng.choice(DTYPES, p=[0.45, 0.45, 0.05, 0.05]))
        if backend in ("numpy", "jax", "jax traced") and dtype == "bfloat16":
            dtype = "float32"
        n = length(rng, only_edges=backend == "jax")  # which compiles for every shape
        rows = max(1, ENTRIES // n)
        if backend in ("jax traced", "torch mapped"):
            rows, n = TRACED[rng.integers(len(TRACED))]
        kind, x = block(rng, rows, n, "float64" if dtype == "float64" else "float32")
        settings = {"dtype": dtype, "kind": f"{dtype}, {kind}", **self._way(rng, backend, dtype)}
        return Case({"x": rounded(x, dtype)}, settings)

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """Mutants of a row, asked for in a way of their own."""
        backend = str(rng.choice(BACKENDS[:3], p=[0.7, 0.2, 0.1]))
        dtype, row = case["dtype"], case["x"][0]
        rows = max(2, ENTRIES // len(row))
        if case["backend"] in BACKENDS[3:]:
            backend = case["backend"]
            rows = next(rows for rows, n in TRACED if n == len(row))
        elif dtype == "bfloat16":
            backend = "torch"
        x = rounded(mutants(row, rng, rows), dtype)
        way = self._way(rng, backend, dtype)
        refused = backend.startswith("jax") and not 1e-30 < abs(case["scale"]) < 1e30
        if rng.random() < 0.7 and not refused:
            way["scale"] = case["scale"]
            if rng.random() < 0.3 and backend != "jax traced":  # which compiles for every scale
                scale = case["scale"] * float(
                    1 + rng.standard_normal() * 10 ** rng.uniform(-15, -0.5)
                )
                if 1e-30 < abs(scale) < 1e30:  # beyond it JAX's float32 is refused
                    way["scale"] = scale
        return Case({"x": x}, {**case.settings, **way})

    def _way(self, rng: np.random.Generator, backend: str, dtype: str) -> dict[str, Any]:
        """Backend, layout and scale."""
        layouts = LAYOUTS if backend == "numpy" else LAYOUTS[:1] + LAYOUTS[2:3]
        layout = str(rng.choice(layouts)) if rng.random() < 0.3 else "packed"
        if backend in BACKENDS[3:]:
            layout = "packed"
        scale = 1.0
        if rng.random() < 0.5:
            scale = float(10 ** rng.uniform(-3, 3))
        elif rng.random() < 0.15:
            most = 30 if backend.startswith("jax") else 35  # beyond it JAX's float32 is refused
            scale = float(10 ** rng.uniform(-most, most))
        # Traced code knows its scale: a new one is compiled anew.
        if backend == "jax traced":
            scale = float(rng.choice([1.0, 0.3, 40.0]))
        if rng.random() < 0.05:
            scale = -scale
        return {"backend": backend, "layout": layout, "scale": scale}

    def judge(self, case: Case) -> Array:
        """Share of the allowed error, the larger one of both constants."""
        x, scale = case["x"], case["scale"]
        sides = asked(x, scale, case["dtype"], case["backend"], case["layout"])
        w = check.weights(x, scale)
        found = [
            rule(w, scale, each)
            for rule, each in zip((check.one_ratio, check.two_ratio), sides, strict=True)
        ]
        ratio = np.maximum(found[0][0], found[1][0])  # NaN stays
        sure = found[0][1] & found[1][1]
        ratio = np.where(sure, np.minimum(ratio, 1.0), ratio)
        for index in np.flatnonzero(~sure):
            pairs = [(float(each.lower[index]), float(each.upper[index])) for each in sides]
            held = all(check.by_arb(x[index], scale, pairs))
            ratio[index] = min(ratio[index], 1.0) if held else max(ratio[index], 1.0 + 1e-9)
        return ratio

    def member(self, case: Case, index: int) -> Case:
        """One row of the block, asked for alone."""
        return case.row(index).but(layout="packed")


def asked(
    x: Array, scale: float, dtype: str, backend: str, layout: str
) -> tuple[check.Sides, check.Sides]:
    """Sides of the constants in l1 and l2 as taut gives them; those in l∞ must be those in l1."""
    array, axis = laid_out(x.astype(stored(dtype), copy=False), layout)
    with _wide_jax() if backend.startswith("jax") and dtype == "float64" else nullcontext():
        out = _constants(scale, axis, backend)(in_backend(array, dtype, backend))
    lines = [np.asarray(part).reshape(len(x)) for part in out]
    assert all(np.array_equal(a, b) for a, b in zip(lines[:3], lines[6:], strict=True)), "l1 is l∞"
    return check.Sides(*lines[:3]), check.Sides(*lines[3:6])


@lru_cache(maxsize=256)  # traced functions are compiled once for each shape
def _constants(scale: float, axis: int, backend: str) -> Callable[[Any], tuple[Any, ...]]:
    def constants(x: Any) -> tuple[Any, ...]:
        bounds = taut.local_lipschitz(x, (1, 2, math.inf), scale=scale, axis=axis)
        return tuple(side for b in bounds for side in (b.lower, b.value, b.upper))

    return traced(constants, backend)


def _wide_jax() -> Any:
    import jax

    return jax.enable_x64(True)
