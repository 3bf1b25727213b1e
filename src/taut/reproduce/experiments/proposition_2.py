"""Proposition 2 of Nair 2025: where ½ is attained, and where it is only approached."""

from __future__ import annotations

import math

import numpy as np

import taut
from taut._base.checks import exponent_name
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Result, ResultTable, never_above

SIZES = (3, 10, 100, 1000, 10000)


def run(options: Options) -> Result:
    """Where the supremum ½ is attained, and where it is only approached."""
    sizes = SIZES[: 3 if options.quick else None]
    rows, inside, attained = [], [], []
    for n in (2, *sizes):
        peak = np.zeros(n)
        peak[0] = math.log(n - 1)
        for p in options.norms:
            bound = taut.local_lipschitz(peak, p=p)
            low, high = float(bound.lower), float(bound.upper)
            if p in (1.0, math.inf) or n == 2:
                attained.append(abs(high - 0.5) < 1e-12 and low > 0.5 - 1e-12)
            else:
                inside.append(high)
            rows.append([str(n), exponent_name(p), f"{low:.12f}", f"{high:.12f}"])
    lower, upper = _search(options)
    smooth = any(1 < p < math.inf for p in options.norms)
    strict = [value < 0.5 for value in inside]
    return Result(
        "proposition-2",
        "Proposition 2 of Nair 2025: ½ is tight, and attained inside for p = 1, ∞ or n = 2 only",
        {"n": [2, *sizes], "norms": list(options.norms), "seed": options.seed},
        [
            Claim("at x = (ln(n−1), 0, …, 0): attained for p = 1, ∞, and for n = 2 in every norm",
                  "½", "½" if all(attained) else "not ½", all(attained)),
            Claim("strictly below ½ at that point for 1 < p < ∞ and n > 2", "< ½",
                  f"{max(inside):.6f}" if inside else "not asked",
                  all(strict) if inside else None),
            Claim("no point of the simplex exceeds ½ (upper sides at random points of many shapes)",
                  "≤ ½", f"{np.max(upper):.12f}", never_above(upper, 0.5 + 1e-12)),
            Claim("for 1 < p < ∞ and n > 2 some come within a thousandth of it (lower sides)",
                  "sup = ½", f"{np.max(lower):.12f}" if smooth else "not asked",
                  bool(np.max(lower) > 0.499) if smooth else None),
        ],
        [ResultTable("Local constants at (ln(n−1), 0, …, 0)", ["n", "p", "at least", "at most"],
                     rows)],
        [],
        ["The abstract of the paper says that local constants are strictly below ½ for 1 < p < ∞; "
         "this needs n ≥ 3, since for n = 2 the point (½, ½) attains it."],
    )  # fmt: skip


def _search(options: Options) -> tuple[list[float], list[float]]:
    """Largest sides of the local constants of random rows: peaks, pairs and plateaus.

    Upper sides of all; lower sides where ½ is not attained, for 1 < p < ∞ and n > 2.
    """
    source = np.random.default_rng(options.seed)
    count = 200 if options.quick else 2000
    lower, upper = [0.0], []
    for n in (2, 3, 10, 100):
        x = source.standard_normal((count, n)) * 10 ** source.uniform(-2, 1.5, (count, 1))
        x[: count // 2, :2] = x[: count // 2].max(axis=1, keepdims=True)  # two at the top
        for p in options.norms:
            found = taut.local_lipschitz(x, p=p)
            upper.append(float(np.max(found.upper)))
            if n > 2 and 1 < p < math.inf:
                lower.append(float(np.max(found.lower)))
    return lower, upper
