"""S1's constructions for tightness: Example 1, Example 2 and Proposition 2."""

from __future__ import annotations

import math

import numpy as np

import taut
from taut._checks import exponent_name
from taut.reproduce._options import Options
from taut.reproduce._result import Claim, Curve, Plot, Result, Table, never_above

PRINTED, CORRECTED = "0.4999999504472", "0.4999999950444"
SIZES = (3, 10, 100, 1000, 10000)


def example_1(options: Options) -> Result:
    """Two equal logits far above eight others, moved along the eigenvector."""
    x = np.array([0.0, 0.0, *[-20.0] * 8])
    v = np.array([1.0, -1.0, *[0.0] * 8])  # of the largest eigenvalue of the Jacobian
    growth = np.expm1(1e-4 * v / np.sqrt(2))
    s = taut.softmax(x)
    change = s * (growth - s @ growth) / (1 + s @ growth)  # does not cancel, as a difference would
    rows, found, worst = [], [], []
    for p in options.norms:
        found.append(float(np.linalg.norm(change, p) / np.linalg.norm(1e-4 * v / np.sqrt(2), p)))
        worst.append(float(taut.empirical_lipschitz(x, p, epsilon=1e-4, along="worst").lower))
        local = taut.local_lipschitz(x, p=p)
        numbers = found[-1], worst[-1], float(local.lower), float(local.upper)
        rows.append([exponent_name(p), *(f"{number:.13f}" for number in numbers)])
    header = ["p", "ratio along the eigenvector", "along the worst direction",
              "local constant, at least", "at most"]  # fmt: skip
    both = [min(found), max(found)]
    return Result(
        "example-1",
        "Example 1: a pair of points that nearly attains ½",
        {"K": 20, "epsilon": 1e-4, "n": 10, "norms": list(options.norms)},
        [
            Claim("the ratio, for all p", PRINTED, f"{both[0]:.13f}",
                  all(abs(ratio - float(PRINTED)) < 5e-13 for ratio in both)),
            Claim("the same by arithmetic of 50 digits", f"({CORRECTED})", f"{both[0]:.13f}",
                  all(abs(ratio - float(CORRECTED)) < 5e-13 for ratio in both)),
            Claim("never above ½, in all norms, along both directions", "0.5",
                  f"{max(found + worst):.13f}", never_above(found + worst, 0.5)),
        ],
        [Table("In every norm, for a step of 1e-4", header, rows)],
        [],
        ["The paper prints 0.4999999504472, in which a 9 is missing; with it the number differs by "
         "3·10⁻¹³ from what arithmetic of 50 digits gives, which is the rounding of a difference "
         "in double precision. The worst direction is that of the derivative: for a step that is "
         "not small, another one, as the eigenvector's here, can reach a little more."],
    )  # fmt: skip


def example_2(options: Options) -> Result:
    """A sequence inside the simplex along which ‖M(s)v‖_p goes to ½."""
    deltas = [10.0**-k for k in range(1, 9)]
    n = 10
    curves, rows, off, printed = [], [], [], []
    for p in options.norms:
        gaps = []
        for delta in deltas:
            s = np.array([0.5 - delta, 0.5 - delta, *[2 * delta / (n - 2)] * (n - 2)])
            bound = taut.local_lipschitz(np.log(s), p=p)
            v = np.zeros(n)
            v[0], v[1] = 2 ** -(1 / p), -(2 ** -(1 / p))
            moved = float(np.linalg.norm(s * (v - s @ v), p))
            off.append(abs(moved - (0.5 - delta)))
            printed.append(abs(moved - (0.5 - 2 * delta * (1 - delta))))
            gaps.append(max(0.5 - float(bound.upper), 0.0))
            rows.append([exponent_name(p), f"{delta:g}", f"{moved:.10f}", f"{0.5 - delta:.10f}",
                         f"{0.5 - 2 * delta * (1 - delta):.10f}",
                         f"{float(bound.lower):.10f} to {float(bound.upper):.10f}"])  # fmt: skip
        curves.append(Curve(f"p = {exponent_name(p)}", deltas, gaps))
    header = ["p", "δ", "‖M(s)v‖_p", "½ − δ", "½ − 2δ(1 − δ)", "‖M(s)‖_p"]
    last = float(rows[-1][2])
    return Result(
        "example-2",
        "Example 2: a sequence inside the simplex that approaches ½",
        {"n": n, "norms": list(options.norms)},
        [
            Claim("‖M(s)v‖_p for s = (½−δ, ½−δ, 2δ/(n−2), …) and v = 2^(−1/p)(1, −1, 0, …)",
                  "½ − 2δ(1 − δ)", f"differs by up to {max(printed):.2g}", max(printed) < 1e-12),
            Claim("as corrected", "½ − δ", f"differs by up to {max(off):.1g}", max(off) < 1e-12),
            Claim("it tends to ½", "0.5", f"{last:.10f}", abs(last - 0.5) < 1e-7),
        ],
        [Table("Along the sequence", header, rows)],
        [Plot("Distance of the local constant from ½", "δ", "½ − ‖M(s)‖_p", curves,
              log_x=True, log_y=True)],
        ["⟨s, v⟩ = 0, so that M(s)v is s∘v, whose norm is ½ − δ: the sequence approaches ½ faster "
         "than the paper says, and the conclusion stands."],
    )  # fmt: skip


def proposition_2(options: Options) -> Result:
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
        "Proposition 2: ½ is tight, and attained inside for p = 1, ∞ or n = 2 only",
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
        [Table("Local constants at (ln(n−1), 0, …, 0)", ["n", "p", "at least", "at most"], rows)],
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
