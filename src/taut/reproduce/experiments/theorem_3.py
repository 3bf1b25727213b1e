"""Theorem 3 of Nair 2025: the double softmax contracts above a temperature."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import taut
from taut import games
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable, never_above

Matrix = np.ndarray[Any, np.dtype[np.float64]]
# Each certificate, the exponent that it is asked with, and that of the norm that it speaks of.
FORMS = {"dsfp-tv": (None, 1.0), "dsfp-2": (2.0, 2.0), "dsfp-p, p = 4": (4.0, 4.0)}
STEPS = 3000


class _Contraction(NamedTuple):
    """One game: its thresholds and factors as lines of tables, and shares of predicted factors."""

    thresholds: list[str]
    rows: list[list[str]]
    shares: list[float]
    damped: list[float]  # with α = ½, of the factor in l2
    plot: Plot


def run(options: Options) -> Result:
    """Predicted and observed contraction, and the temperature at which plain iteration fails."""
    source = np.random.default_rng(options.seed)
    sizes = ((5, 5), (30, 20)) if options.quick else ((5, 5), (30, 20), (100, 100), (300, 200))
    made = {"matching pennies": np.array([[1.0, -1.0], [-1.0, 1.0]])}
    made |= {f"Gaussian, {n} by {m}": source.standard_normal((n, m)) for n, m in sizes}
    made["signs, 30 by 20"] = np.sign(source.standard_normal((30, 20)))
    found = [_contraction(name, payoffs, options.seed) for name, payoffs in made.items()]
    shares = [share for one in found for share in one.shares]
    damped = [share for one in found for share in one.damped]
    sums = _paper_factor(source)
    pairs = [f"{form}, {what}" for form in FORMS for what in ("reached", "factor")]
    return Result(
        "theorem-3",
        "Theorem 3 of Nair 2025: the double softmax contracts above a temperature",
        {"games": list(made), "seed": options.seed},
        [
            Claim("for α = 1 no factor of a certificate is exceeded, each in its own norm (largest "
                  "share)", "≤ 1", f"{np.max(shares):.6f}", never_above(shares, 1 + 1e-9)),
            Claim("the factor ‖A‖₂²/(4τ²) holds for every α in (0, 1]: share reached with α = ½",
                  "≤ 1", f"{np.max(damped):.3f}", never_above(damped, 1 + 1e-9)),
            Claim("the factor ‖A‖_p²/(4τ²) for p = 1 and ∞: largest share found", "≤ 1",
                  f"{sums:.6f}", sums <= 1 + 1e-9),
            Claim("the same for other p", "≤ 1", "not checked", None),
        ],
        [
            ResultTable("Where plain iteration really fails, and from where on it is certified",
                  ["game", "fails below τ", f"change after {STEPS:,} steps at 1.05 of it",
                   "at 0.95 of it", *FORMS, "paper, ‖A‖₁/2", "paper, ‖A‖_∞/2"],
                        [one.thresholds for one in found]),
            ResultTable("Contraction factors", ["game", "τ", "at the equilibrium", *pairs],
                        [row for one in found for row in one.rows]),
        ],
        [one.plot for one in found],
        ["T is the map y → σ(Aᵀσ(−Ay/τ)/τ), undamped (α = 1). Reached: the largest ratio of "
         "distances after and before one step, over random pairs of strategies and over small "
         "moves at the equilibrium, the worst one among them for sums and l2; in l1 (total "
         "variation) for dsfp-tv, in l2 for dsfp-2, in l4 for the last. At the equilibrium: the "
         "spectral radius of the derivative, which decides whether plain iteration converges near "
         "it. D, in dsfp-tv's factor (D/4τ)², is the largest |A_ij − A_kj − A_il + A_kl|.",
         "",
         "With damping the factor is (1 − α) + α‖A‖₂²/(4τ²), not the one that the paper states for "
         "all α. For p other than 2 its proof uses ‖Aᵀ‖_p = ‖A‖_p, which is not true; what is "
         "proved for every p is ‖A‖_p‖A‖_p′/(4τ²), with the dual exponent p′ (dsfp-p). The paper's "
         "factor itself still holds for p = 1, where it is at least that of dsfp-tv, as D ≤ 2‖A‖₁; "
         "and for p = ∞, as ‖dx‖₁ ≤ osc(A dy)/(2τ) ≤ ‖A‖_∞‖dy‖_∞/τ, osc(Aᵀdx) ≤ ‖A‖_∞‖dx‖₁ and "
         "‖dσ‖_∞ ≤ osc/(4τ), where osc is the largest entry less the smallest."],
    )  # fmt: skip


def _contraction(name: str, payoffs: Matrix, seed: int) -> _Contraction:
    """Contraction factors of a game over temperatures, predicted and reached."""
    least = {
        form: float(games.certify(payoffs, 1.0, p=p).smallest_temperature)
        for form, (p, _) in FORMS.items()
    }
    paper = (np.linalg.norm(payoffs, p) / 2 for p in (1, np.inf))
    certified = (f"{tau:.4f}" for tau in (*least.values(), *paper))
    rows, shares, damped = [], [], []
    seen = {form: Curve(f"reached, {form}", [], []) for form in FORMS}
    bounds = {form: Curve(form, [], [], dashed=True) for form in FORMS}
    for tau in map(float, np.geomspace(min(least.values()) * 1.05, 3 * max(least.values()), 8)):
        line = [name, f"{tau:.3f}", f"{_radius(payoffs, tau):.5f}"]
        for form, (p, norm) in FORMS.items():
            predicted = float(games.certify(payoffs, tau, p=p).factor.upper)
            reached = _reached(payoffs, tau, norm, seed)
            line += [f"{reached:.5f}", f"{predicted:.5f}"]
            shares.append(reached / predicted)
            for curve, factor in ((seen[form], reached), (bounds[form], predicted)):
                curve.x.append(tau)
                curve.y.append(factor)
            if form == "dsfp-2" and predicted < 1:
                damped.append(_reached(payoffs, tau, 2.0, seed, 0.5) / predicted)
        rows.append(line)
    shown = [curve for form in ("dsfp-tv", "dsfp-2") for curve in (seen[form], bounds[form])]
    plot = Plot(name, "τ", "contraction factor", shown, log_x=True, log_y=True)
    thresholds = [name, *_where_it_fails(payoffs), *certified]
    return _Contraction(thresholds, rows, shares, damped, plot)


def _double(payoffs: Matrix, y: Matrix, tau: float) -> Matrix:
    """One step of the double softmax; columns are strategies."""
    x = taut.softmax(-(payoffs @ y), scale=1 / tau, axis=0)
    moved: Matrix = taut.softmax(payoffs.T @ x, scale=1 / tau, axis=0)
    return moved


def _reached(payoffs: Matrix, tau: float, p: float, seed: int, alpha: float = 1.0) -> float:
    """The largest contraction in l_p of random pairs, and of small moves at the equilibrium."""
    source = np.random.default_rng(seed)
    m = payoffs.shape[1]
    y, z = source.dirichlet(np.full(m, 0.3), (2, 200)).transpose(0, 2, 1)
    moved = (1 - alpha) * (y - z) + alpha * (_double(payoffs, y, tau) - _double(payoffs, z, tau))
    slope = (1 - alpha) * np.eye(m) + alpha * _slope(payoffs, tau)
    moves = _moves(slope, source)
    return float(np.max([_ratio(moved, y - z, p), _ratio(slope @ moves, moves, p)]))


def _moves(slope: Matrix, source: np.random.Generator) -> Matrix:
    """Directions between strategies: the worst for sums, the worst for l2, and random ones."""
    m = len(slope)
    centre = np.eye(m) - 1 / m
    corners = np.eye(m)[:, :, None] - np.eye(m)[:, None, :]  # between two pure strategies
    first, second = np.triu_indices(m, 1)
    some = corners[:, first, second]
    worst = np.linalg.svd(slope @ centre)[2][:1].T
    moves: Matrix = np.concatenate(
        [some, centre @ worst, centre @ source.standard_normal((m, 200))], axis=1
    )
    return moves


def _ratio(after: Matrix, before: Matrix, p: float) -> float:
    return float((np.linalg.norm(after, p, axis=0) / np.linalg.norm(before, p, axis=0)).max())


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


def _where_it_fails(payoffs: Matrix) -> list[str]:
    """The temperature at which the radius is 1, and what plain iteration does on either side."""
    low, high = (
        1e-3 * float(np.abs(payoffs).max()),
        float(games.certify(payoffs, 1.0).smallest_temperature),
    )
    if _radius(payoffs, low) >= 1:
        for _ in range(30):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if _radius(payoffs, middle) >= 1 else (low, middle)
    else:
        high = low
    changes = []
    for tau in (1.05 * high, 0.95 * high):
        y = np.linspace(1, 2, payoffs.shape[1])[:, None]  # not an equilibrium itself
        y /= y.sum()
        for _ in range(STEPS):
            last, y = y, _double(payoffs, y, tau)
        changes.append(f"{np.abs(y - last).sum():.1e}")
    return [f"{high:.4f}", *changes]


def _paper_factor(source: np.random.Generator) -> float:
    """The largest share of the factor ‖A‖_p²/(4τ²), p = 1 and ∞, at equilibria of small games.

    Games with few rows or columns that count, for there ‖A‖_p and ‖Aᵀ‖_p differ most.
    """
    shares = []
    for n in (2, 4, 8):
        row = np.zeros((n, n))
        row[0, : n // 2], row[0, n // 2 :] = 1.0, -1.0
        for payoffs in (row, row.T, row * source.standard_normal((n, n)), np.eye(n)):
            for tau in np.geomspace(0.5, 30, 12):
                slope = _slope(payoffs, float(tau))
                for p in (1, np.inf):
                    share = np.linalg.norm(slope, p) / np.linalg.norm(payoffs, p) ** 2
                    shares.append(4 * tau**2 * share)
    return float(np.max(shares))
