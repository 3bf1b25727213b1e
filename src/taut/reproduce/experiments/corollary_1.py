"""Corollary 1 of Nair 2025: the regularity of softmax."""

from __future__ import annotations

import numpy as np

import taut
from taut._base.checks import exponent_name
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Result, ResultTable, never_above


def run(options: Options) -> Result:
    """Lipschitz, co-coercive, firmly nonexpansive for λ ≤ 2, contractive for λ < 2."""
    source = np.random.default_rng(options.seed)
    scales = (0.5, 1.0, 1.9, 2.0, 2.5, 4.0)
    count = 2_000 if options.quick else 20_000
    rows, lipschitz, coercive = [], [], []
    for scale in scales:
        ratios: dict[float, list[float]] = {p: [] for p in options.norms}
        inners: list[float] = []
        firms: list[float] = []
        for n in (2, 3, 10):
            x = (
                source.standard_normal((count, n))
                * 10 ** source.uniform(-1.5, 1, (count, 1))
                / scale
            )
            x[::2, 1] = x[::2, 0]
            step = source.standard_normal((count, n)) * 10 ** source.uniform(-3, 0.5, (count, 1))
            step[::2, 2:] = 0.0
            step[::4, 1] = -step[::4, 0]
            moved = x + step
            step = moved - x  # what it is after rounding
            change = taut.softmax(moved, scale=scale) - taut.softmax(x, scale=scale)
            inner, square = (change * step).sum(axis=1), (change**2).sum(axis=1)
            seen = ~(square <= 1e-12)  # smaller ones are rounding; NaN is seen
            inners.append(float((inner[seen] / square[seen]).min()))
            firms.append(float((inner - square)[seen].min()))
            for p, found in ratios.items():
                lengths = (np.linalg.norm(v, p, axis=1) for v in (change, step))
                found.append(float(np.max(next(lengths) / next(lengths))))
        # NumPy's: those of Python pass over NaN.
        ratio = {p: float(np.max(found)) for p, found in ratios.items()}
        least, firm = float(np.min(inners)), float(np.min(firms))
        rows.append([f"{scale:g}", f"{scale / 2:g}", *(f"{r:.6f}" for r in ratio.values()),
                     f"{2 / scale:g}", f"{least:.6f}",
                     "yes" if firm >= -1e-15 else "no"])  # fmt: skip
        lipschitz += [r / (scale / 2) for r in ratio.values()]
        coercive.append(least / (2 / scale))
    firm_as_said = all(row[-1] == ("yes" if float(row[0]) <= 2 else "no") for row in rows)
    header = ["λ", "λ/2", *(f"largest, p = {exponent_name(p)}" for p in options.norms),
              "2/λ", "smallest ⟨Δσ, Δx⟩/‖Δσ‖²", "firmly nonexpansive"]  # fmt: skip
    return Result(
        "corollary-1",
        "Corollary 1 of Nair 2025: softmax is λ/2-Lipschitz and 2/λ-co-coercive",
        {"pairs": 3 * count, "norms": list(options.norms), "seed": options.seed},
        [
            Claim("‖Δσ‖_p ≤ (λ/2)‖Δx‖_p for all p", "≤ 1 (of λ/2)", f"{np.max(lipschitz):.6f}",
                  never_above(lipschitz, 1 + 1e-9)),
            Claim("⟨Δσ, Δx⟩ ≥ (2/λ)‖Δσ‖₂²", "≥ 1 (of 2/λ)", f"{np.min(coercive):.6f}",
                  never_above([-c for c in coercive], -1 + 1e-6)),
            Claim("firmly nonexpansive for λ ≤ 2, and not beyond", "λ ≤ 2",
                  "as said" if firm_as_said else "otherwise", firm_as_said),
        ],
        [ResultTable("Random pairs", header, rows)],
        [],
        [f"Over {3 * count:,} random pairs for each λ, with 2, 3 and 10 classes."],
    )  # fmt: skip
