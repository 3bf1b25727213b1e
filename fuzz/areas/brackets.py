"""Brackets of the constant in any other l_p, plain and tight, against a power method."""

from __future__ import annotations

import numpy as np

import taut
from fuzz import softmax_truth as truth
from fuzz.area import Area
from fuzz.case import Array, Case
from fuzz.softmax_rows import block, length, mutants

STEPS = 40


def _exponent(rng: np.random.Generator) -> float:
    """An exponent besides 1, 2 and ∞: near them, in between, or large."""
    if rng.random() < 0.4:
        return float(rng.choice([1.001, 1.1, 1.5, 1.9, 1.999, 2.001, 2.1, 3.0, 4.0, 8.0, 60.0]))
    q = float(2 + 10 ** rng.uniform(-3, 1.8))
    return q if rng.random() < 0.6 else q / (q - 1)


class Brackets(Area):
    """Upper sides of ‖M‖_p against the largest quotient found; the sides against each other."""

    name = "brackets"
    goal = 100_000
    unit = "rows"
    ratio = "largest quotient found over the upper side"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A block of rows of one kind and length, and an exponent."""
        tight = bool(rng.random() < 0.2)
        n = length(rng, 24 if tight else 200)
        dtype = str(rng.choice(["float64", "float32"], p=[0.8, 0.2]))
        kind, x = block(rng, self._rows(n, tight), n, dtype)
        kind = f"{'tight' if tight else 'plain'}, {kind}"
        scale = float(10 ** rng.uniform(-1, 1)) if rng.random() < 0.3 else 1.0
        return Case({"x": x}, {"kind": kind, "p": _exponent(rng), "tight": tight, "scale": scale})

    def _rows(self, n: int, tight: bool) -> int:
        return max(1, 4 if tight else 1024 // n)

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """Mutants of a row, often with another exponent."""
        row = case["x"][0]
        x = mutants(row, rng, self._rows(len(row), case["tight"]))
        p = case["p"] if rng.random() < 0.7 else _exponent(rng)
        return case.but(x=x, p=p)

    def judge(self, case: Case) -> Array:
        """The best quotient of a power method over the upper side; sides must be in order."""
        x, p, scale = case["x"], case["p"], case["scale"]
        bound = taut.local_lipschitz(x, p, scale=scale, tight=case["tight"])
        s = truth.probabilities(x, scale)
        best = climbed(s, np.asarray(taut.worst_direction(x, p, scale=scale)), p)
        upper = bound.upper.astype(truth.WIDE)
        with np.errstate(all="ignore"):
            ratio = best * scale * (1 - truth.DOUBT) / upper
        ratio = np.where(best == 0, 0.0, ratio).astype(float)
        ratio = np.where(bound.lower <= bound.upper, ratio, np.nan)
        if case["tight"]:  # the plain lower side is a quotient too: nothing proved is below it
            plain = taut.local_lipschitz(x, p, scale=scale).lower
            ratio = np.where(plain <= bound.upper, ratio, np.nan)
        return ratio

    def member(self, case: Case, index: int) -> Case:
        """One row."""
        return case.row(index)


def climbed(s: Array, start: Array, p: float) -> Array:
    """The largest ‖M(s)v‖_p/‖v‖_p on the way of the nonlinear power method from several starts.

    The ways are found in double precision, and the quotients of their ends in extended precision.
    """
    q = max(p, p / (p - 1))  # M is symmetric: the norm for p is that for its dual exponent
    rows, n = s.shape
    plain = s.astype(np.float64)
    rng = np.random.default_rng(n)  # the same starts for the same shape
    order = np.argsort(-plain, axis=1)
    pair = np.zeros((rows, n))
    np.put_along_axis(pair, order[:, :1], 1.0, axis=1)
    if n > 1:
        np.put_along_axis(pair, order[:, 1:2], -1.0, axis=1)
    top = (pair > 0).astype(float)
    v = np.stack([top, pair, rng.standard_normal((rows, n)), rng.standard_normal((rows, n)) ** 3])
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            u = _unit(truth.product(plain, v))
            v = _unit(truth.product(plain, np.sign(u) * np.abs(u) ** (q - 1)))
            v = np.sign(v) * np.abs(v) ** (1 / (q - 1))
    ends = np.nan_to_num(v).astype(truth.WIDE)
    found = truth.quotient(s, ends, q, q).max(axis=0)
    return np.maximum(found, truth.quotient(s, start.astype(truth.WIDE), p, p))


def _unit(v: Array) -> Array:
    return v / np.maximum(np.abs(v).max(axis=-1, keepdims=True), 1e-300)
