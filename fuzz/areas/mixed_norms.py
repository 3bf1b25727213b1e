"""Constants from one norm to another: 1→q and p→∞ exactly, ∞→1 by all signs of short rows."""

from __future__ import annotations

import math

import numpy as np

import taut
from fuzz import softmax_truth as truth
from fuzz.area import Area
from fuzz.case import Array, Case
from fuzz.softmax_rows import block, length, mutants

SHORT = 12  # logits of which all signs are tried


class MixedNorms(Area):
    """Both sides against the truth; of long rows from ∞ to 1 against the best signs found."""

    name = "mixed norms"
    goal = 100_000
    unit = "rows"
    ratio = "the truth over the upper side, or the lower side over the truth"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A block of rows and a pair of norms."""
        pair = str(rng.choice(["1 to q", "p to inf", "inf to 1"]))
        n = length(rng, 300)
        if pair == "inf to 1" and rng.random() < 0.6:
            n = int(rng.integers(1, SHORT + 1))
        dtype = str(rng.choice(["float64", "float32"]))
        kind, x = block(rng, max(1, 4096 // n if pair != "inf to 1" else 512 // n), n, dtype)
        q = float(1 + 10 ** rng.uniform(-2, 2)) if rng.random() < 0.8 else math.inf
        scale = float(10 ** rng.uniform(-1, 1)) if rng.random() < 0.3 else 1.0
        settings = {"kind": f"{pair}, {kind}", "pair": pair, "q": q, "scale": scale}
        return Case({"x": x}, settings)

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """Mutants of a row."""
        row = case["x"][0]
        most = 4096 if case["pair"] != "inf to 1" else 512
        return case.but(x=mutants(row, rng, max(2, most // len(row))))

    def judge(self, case: Case) -> Array:
        """How near either side is to the truth from its wrong side."""
        x, q, scale, pair = (case[name] for name in ("x", "q", "scale", "pair"))
        s = truth.probabilities(x, scale)
        if pair == "inf to 1":
            bound = taut.local_lipschitz(x, math.inf, 1, scale=scale)
            low, high = signed(s, np.asarray(taut.worst_direction(x, math.inf, 1, scale=scale)))
        elif pair == "1 to q":
            bound = taut.local_lipschitz(x, 1, q, scale=scale)
            low = high = columns(s, q)
        else:
            p = 1.0 if math.isinf(q) else q / (q - 1)  # the dual exponent
            bound = taut.local_lipschitz(x, p, math.inf, scale=scale)
            low = high = columns(s, 1 / (1 - 1 / truth.WIDE(p)) if p > 1 else math.inf)
        with np.errstate(all="ignore"):
            above = np.where(low > 0, low * scale * (1 - truth.DOUBT) / bound.upper, 0.0)
            below = np.where(bound.lower > 0, bound.lower / (high * scale * (1 + truth.DOUBT)), 0.0)
        ratio = np.maximum(above, below).astype(float)
        return np.where(bound.lower <= bound.upper, ratio, np.nan)

    def member(self, case: Case, index: int) -> Case:
        """One row."""
        return case.row(index)


def columns(s: Array, q: float) -> Array:
    """The largest l_q norm of a column of M: sⱼ((1 − sⱼ)^q + Σ_{i≠j} sᵢ^q)^{1/q}."""
    n = s.shape[-1]
    if n == 1:
        return np.zeros(len(s), truth.WIDE)
    rest = np.stack([np.delete(s, j, axis=-1).sum(axis=-1) for j in range(n)], axis=-1)
    if np.isinf(q):
        return (s * rest).max(axis=-1)
    largest = np.zeros(len(s), truth.WIDE)
    for j in range(n):
        unit = np.where(rest[:, j] > 0, rest[:, j], 1)
        others = ((np.delete(s, j, axis=-1) / unit[:, None]) ** truth.WIDE(q)).sum(axis=-1)
        column = s[:, j] * rest[:, j] * (1 + others) ** (1 / truth.WIDE(q))
        largest = np.maximum(largest, column)
    return largest


def signed(s: Array, direction: Array) -> tuple[Array, Array]:
    """What ‖M‖_{∞→1} is at least, and at most: 1 − D² with D = |Σ εᵢsᵢ| for the best signs."""
    n = s.shape[-1]
    top = s.max(axis=-1)
    alone = 4 * top * np.sort(s, axis=-1)[:, :-1].sum(axis=-1)  # if the top is at least ½
    if n <= SHORT:
        signs = np.array(np.meshgrid(*[[1, -1]] * n)).reshape(n, -1)
        least = np.abs(s @ signs).min(axis=-1)
        found = np.where(top >= 0.5, alone, (1 - least) * (1 + least))
        return found, found
    reached = np.abs((s * np.where(direction > 0, 1, -1)).sum(axis=-1))
    return (
        np.where(top >= 0.5, alone, (1 - reached) * (1 + reached)),
        np.where(top >= 0.5, alone, 1),
    )
