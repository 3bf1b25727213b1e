"""Games: gaps, values and distances of answers in 400 bits; contraction factors by search."""

from __future__ import annotations

import math

import numpy as np

from fuzz.area import Area
from fuzz.case import Array, Case
from taut import games
from tests.helpers.game_attack import steepest
from tests.helpers.game_oracle import equilibrium, true_gap

SHAPES = ("gaussian", "signs", "integers", "skew", "duplicated", "dominated", "rank one", "mixed")
ROUNDING = 4e-8  # of a quotient, see game_attack


class Games(Area):
    """What an answer says of itself against the truth, and what a certificate says of a step."""

    name = "games"
    goal = 10_000
    unit = "games"
    ratio = "true gap, distance or contraction over its bound"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A small game of some shape at some temperature."""
        shape = str(rng.choice(SHAPES))
        A = payoffs(shape, rng)
        tau = float(10 ** rng.uniform(-3, 2) * (np.ptp(A) or 1.0))
        what = str(rng.choice(["answer", "contraction"]))
        settings = {"kind": f"{what}, {shape}", "what": what, "tau": tau,
                    "tolerance": float(10 ** rng.uniform(-12, -1)),
                    "method": str(rng.choice(["auto", "predictive", "newton"])),
                    "p": float(rng.choice([0.0, 1.0, 1.5, 2.0, 3.0, math.inf])),
                    "seed": int(rng.integers(1 << 31))}  # fmt: skip
        return Case({"A": A}, settings)

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """The same game with some payoffs moved, at a temperature nearby."""
        A = case["A"]
        few = rng.random(A.shape) < 0.5
        A = A + few * rng.normal(size=A.shape) * 10 ** rng.uniform(-4, 0) * (np.abs(A).max() + 1e-9)
        tau = case["tau"] * float(np.exp(0.3 * rng.normal()))
        return case.but(A=A, tau=tau, seed=int(rng.integers(1 << 31)))

    def judge(self, case: Case) -> Array:
        """One game."""
        rule = self._answer if case["what"] == "answer" else self._contraction
        return np.array([rule(case)])

    def _answer(self, case: Case) -> float:
        A, tau = case["A"], case["tau"]
        s = games.solve(A, tau, tolerance=case["tolerance"], method=case["method"])
        gap = true_gap(A, tau, s.x, s.y)
        x, y, value = equilibrium(A, tau, s.x, s.y)
        if not s.lower <= value <= s.upper:
            return math.nan
        distance = math.hypot(np.abs(s.x - x).sum(), np.abs(s.y - y).sum())
        # The equilibrium is rounded to double precision.
        allowed = float(s.distance.upper) + 1e-14
        return max(gap / s.gap if gap > 0 else 0.0, distance / allowed)

    def _contraction(self, case: Case) -> float:
        A, tau, p = case["A"], case["tau"], case["p"]
        factor = games.certify(A, tau, p=p or None).factor.upper
        rng = np.random.default_rng(case["seed"])
        if A.shape[1] < 2:
            return 0.0
        found = steepest(-A, A, tau, p or 1, rng, tries=15)
        # Strategies are at least 1e-7 apart, and what becomes of them is rounded by a few 1e-16.
        return (found * (1 - 1e-7) - ROUNDING) / factor if found > 2 * ROUNDING else 0.0


def payoffs(shape: str, rng: np.random.Generator) -> Array:
    """A game of at most 5 by 5."""
    n, m = (int(k) for k in rng.integers(1, 6, size=2))
    A = rng.normal(size=(n, m))
    if shape == "signs":
        A = np.sign(A)
    elif shape == "integers":
        A = np.round(2 * A)
    elif shape == "skew":
        A = rng.normal(size=(n, n))
        A = A - A.T
    elif shape == "duplicated":
        A = np.repeat(A, 2, axis=0)
    elif shape == "dominated":
        A[0] += 5
    elif shape == "rank one":
        A = np.outer(rng.normal(size=n), rng.normal(size=m))
    elif shape == "mixed":
        A = A * 10.0 ** rng.integers(-4, 5, size=(n, m))
    return A * 10 ** rng.uniform(-3, 3)
