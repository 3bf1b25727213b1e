"""S1's Theorem 3 and Corollary 1: the double softmax, and the regularity of softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

import taut
from taut import games
from taut._checks import exponent_name
from taut.reproduce._options import Options
from taut.reproduce._result import Claim, Curve, Plot, Result, Table, never_above

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def theorem_3(options: Options) -> Result:
    """Predicted and observed contraction, and the temperature at which plain iteration fails."""
    source = np.random.default_rng(options.seed)
    sizes = ((5, 5), (30, 20)) if options.quick else ((5, 5), (30, 20), (100, 100), (300, 200))
    made = {f"Gaussian, {n} by {m}": source.standard_normal((n, m)) for n, m in sizes} | {
        f"signs, {n} by {m}": np.sign(source.standard_normal((n, m))) for n, m in sizes[1:2]
    }
    rows, thresholds, kept, plots = [], [], [], []
    for name, payoffs in made.items():
        forms = {"dsfp-tv": None, "dsfp-2": 2.0, "dsfp-p, p = 1": 1.0, "dsfp-p, p = 4": 4.0}
        least = {
            form: float(games.certify(payoffs, 1.0, p=p).smallest_tau) for form, p in forms.items()
        }
        fails = _critical(payoffs)
        thresholds.append([name, f"{fails:.4f}", *(f"{tau:.4f}" for tau in least.values())])
        kept += [tau >= fails for tau in least.values()]
        curves = [Curve(form, [], [], dashed=True) for form in forms]
        seen = Curve("observed", [], [])
        for tau in np.geomspace(min(least.values()) * 1.05, 3 * max(least.values()), 8):
            observed, final = _observed(payoffs, float(tau), options.seed)
            seen.x.append(float(tau))
            seen.y.append(observed)
            line = [name, f"{tau:.3f}", f"{observed:.5f}", f"{final:.5f}"]
            for curve, p in zip(curves, forms.values(), strict=True):
                predicted = float(games.certify(payoffs, float(tau), p=p).factor.upper)
                line.append(f"{predicted:.5f}")
                if predicted < 1:
                    curve.x.append(float(tau))
                    curve.y.append(predicted)
                    kept.append(final <= predicted * (1 + 1e-9))
            rows.append(line)
        plots.append(Plot(name, "τ", "contraction factor", [seen, *curves], log_x=True, log_y=True))
    alone = _with_p_alone(source)
    return Result(
        "theorem-3",
        "Theorem 3: the double softmax contracts above a temperature",
        {"games": list(made), "seed": options.seed},
        [
            Claim("τ > ‖A‖₂/2 gives the factor ‖A‖₂²/(4τ²), and it is never exceeded",
                  "holds", "held" if all(kept) else "exceeded", all(kept)),
            Claim("the same with ‖A‖_p for every p: its share that is reached for p = 1 and ∞",
                  "≤ 1", f"{alone:.6f}", alone <= 1 + 1e-9),
        ],
        [
            Table("Where plain iteration really fails, and from where on it is certified",
                  ["game", "fails below τ", "dsfp-tv", "dsfp-2", "dsfp-1", "dsfp-4"], thresholds),
            Table("Contraction factors",
                  ["game", "τ", "largest of random pairs", "at the equilibrium, in the end",
                   "dsfp-tv", "dsfp-2", "dsfp-1", "dsfp-4"], rows),
        ],
        plots,
        ["The factors are those of the map T itself, undamped. Observed: the largest ratio of "
         "distances in total variation over random pairs of strategies and one step; in the end: "
         "the spectral radius of the derivative of T at the equilibrium, which decides whether "
         "plain iteration converges near it. For p other than 2 the paper's proof uses "
         "‖Aᵀ‖_p = ‖A‖_p, which is not true; what is proved for every p is ‖A‖_p‖A‖_p′/(4τ²), with "
         "the dual exponent p′ (dsfp-p). The paper's factor itself still holds for p = 1, where "
         "it is at least that of dsfp-tv, (D/4τ)², as D ≤ 2‖A‖₁; and for p = ∞, as "
         "‖dx‖₁ ≤ osc(A dy)/(2τ) ≤ ‖A‖_∞‖dy‖_∞/τ, osc(Aᵀdx) ≤ ‖A‖_∞‖dx‖₁ and "
         "‖dσ‖_∞ ≤ osc/(4τ)."],
    )  # fmt: skip


def _double(payoffs: Matrix, y: Matrix, tau: float) -> tuple[Matrix, Matrix]:
    """One step of the double softmax: both strategies; columns are strategies."""
    x = taut.softmax(-(payoffs @ y), scale=1 / tau, axis=0)
    return x, taut.softmax(payoffs.T @ x, scale=1 / tau, axis=0)


def _observed(payoffs: Matrix, tau: float, seed: int) -> tuple[float, float]:
    """The largest contraction of random pairs in total variation, and that at the equilibrium."""
    source = np.random.default_rng(seed)
    y, z = source.dirichlet(np.full(payoffs.shape[1], 0.3), (2, 200)).transpose(0, 2, 1)
    moved = _double(payoffs, y, tau)[1] - _double(payoffs, z, tau)[1]
    ratio = np.abs(moved).sum(axis=0) / np.abs(y - z).sum(axis=0)
    return float(ratio.max()), _radius(payoffs, tau)


def _slope(payoffs: Matrix, tau: float) -> Matrix:
    """The derivative of the double softmax at the equilibrium."""
    found = games.solve(payoffs, tau)
    jx = taut.jacobian(-(payoffs @ np.asarray(found.y)), scale=1 / tau)
    jy = taut.jacobian(payoffs.T @ np.asarray(found.x), scale=1 / tau)
    slope: Matrix = -jy @ payoffs.T @ jx @ payoffs
    return slope


def _radius(payoffs: Matrix, tau: float) -> float:
    """Its spectral radius, which decides whether plain iteration converges near the equilibrium."""
    return float(np.abs(np.linalg.eigvals(_slope(payoffs, tau))).max())


def _critical(payoffs: Matrix) -> float:
    """The temperature at which the derivative at the equilibrium has the radius 1."""
    low, high = 1e-3 * float(np.abs(payoffs).max()), float(games.certify(payoffs, 1.0).smallest_tau)
    if _radius(payoffs, low) < 1:
        return low
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _radius(payoffs, middle) >= 1 else (low, middle)
    return high


def _with_p_alone(source: np.random.Generator) -> float:
    """The largest share of the paper's factor for p = 1 and ∞ that a search finds.

    Games with few rows or columns that count, for there ‖A‖₁ and ‖A‖_∞ differ most.
    """
    worst = 0.0
    for n in (2, 4, 8):
        row = np.zeros((n, n))
        row[0, : n // 2], row[0, n // 2 :] = 1.0, -1.0
        for payoffs in (row, row.T, row * source.standard_normal((n, n)), np.eye(n)):
            for tau in np.geomspace(0.5, 30, 12):
                slope = _slope(payoffs, float(tau))
                for p in (1, np.inf):
                    share = np.linalg.norm(slope, p) / np.linalg.norm(payoffs, p) ** 2
                    worst = max(worst, float(4 * tau**2 * share))
    return worst


def corollary_1(options: Options) -> Result:
    """Lipschitz, co-coercive, firmly nonexpansive for λ ≤ 2, contractive for λ < 2."""
    source = np.random.default_rng(options.seed)
    scales = (0.5, 1.0, 1.9, 2.0, 2.5, 4.0)
    count = 2_000 if options.quick else 20_000
    rows, lipschitz, coercive = [], [], []
    for scale in scales:
        ratio = dict.fromkeys(options.norms, 0.0)
        least, firm = np.inf, np.inf
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
            change = taut.softmax(x + step, scale=scale) - taut.softmax(x, scale=scale)
            inner, square = (change * step).sum(axis=1), (change**2).sum(axis=1)
            seen = square > 1e-12  # smaller ones are rounding
            least = min(least, float((inner[seen] / square[seen]).min()))
            firm = min(firm, float((inner - square)[seen].min()))
            for p in options.norms:
                lengths = (np.linalg.norm(v, p, axis=1) for v in (change, step))
                ratio[p] = max(ratio[p], float(np.max(next(lengths) / next(lengths))))
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
        "Corollary 1: softmax is λ/2-Lipschitz and 2/λ-co-coercive",
        {"pairs": 3 * count, "norms": list(options.norms), "seed": options.seed},
        [
            Claim("‖Δσ‖_p ≤ (λ/2)‖Δx‖_p for all p", "≤ 1 (of λ/2)", f"{max(lipschitz):.6f}",
                  never_above(lipschitz, 1 + 1e-9)),
            Claim("⟨Δσ, Δx⟩ ≥ (2/λ)‖Δσ‖₂²", "≥ 1 (of 2/λ)", f"{min(coercive):.6f}",
                  never_above([-c for c in coercive], -1 + 1e-6)),
            Claim("firmly nonexpansive for λ ≤ 2, and not beyond", "λ ≤ 2",
                  "as said" if firm_as_said else "otherwise", firm_as_said),
        ],
        [Table("Random pairs", header, rows)],
        [],
        [f"Over {3 * count:,} random pairs for each λ, with 2, 3 and 10 classes."],
    )  # fmt: skip
