"""What the rows of one model say about θ, exact constants and bounds, over several draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from taut.reproduce.kept_arrays import Arrays
from taut.reproduce.result import Curve

if TYPE_CHECKING:
    from taut.audit import Record

LOW = 0.9  # θ below this is not about 1
SINK_SHARE = 0.5  # of the samples in which a head has a sink, from which on it counts
SHARES = (0.05, 0.5, 0.95)
BOUNDS: dict[
    str, Callable[[Arrays], Any]
] = {  # from the row's numbers: what each says the l2 constant is at most
    "½ (Newhouse 2025, Nair 2025)": lambda rows: np.full_like(rows["two"], 0.5),
    "2s₁(1 − s₁) (l1 and l∞ constant)": lambda rows: rows["largest"],
    "s₁(1 − s₁ + s₂) (Yudin et al. 2025)": lambda rows: rows["two_largest"],
}
YUDIN = list(BOUNDS)[-1]


class ModelRows(NamedTuple):
    """Rows and audits of one model on several draws of its data."""

    where: str
    draws: list[Arrays]
    records: list[Record]

    @property
    def rows(self) -> int:
        """Number of rows of all draws."""
        return sum(len(draw["two"]) for draw in self.draws)

    def theta_line(self) -> list[str]:
        """A line of the table of θ."""
        return [
            self.where,
            f"{self.rows:,}",
            self._spread(lambda draw: draw["theta"].mean(), ".4f"),
            self._spread(lambda draw: np.mean(draw["theta"] < LOW), ".1%"),
            self._spread(lambda draw: np.mean(head_means(draw) < LOW), ".1%"),
            self._spread(lambda draw: head_means(draw).min(), ".4f"),
            self._spread(lambda draw: draw["theta"].min(), ".1e"),
        ]

    def constant_line(self) -> list[str]:
        """A line of the table of exact constants and sinks."""
        heads = [record.heads for record in self.records]
        with_sink = [[h for h in found if h["sink"] >= SINK_SHARE] for found in heads]
        shares = [len(w) / len(found) for w, found in zip(with_sink, heads, strict=True)]
        keys = [head["sink_key"] for found in with_sink for head in found]
        usual = max(set(keys), key=keys.count) if keys else ""
        of_sinks = f"{usual!r} ({keys.count(usual) / len(keys):.0%})" if keys else "–"
        return [
            self.where,
            self._spread(lambda draw: draw["two"].mean(), ".4f"),
            *self._quantiles(lambda draw: draw["two"], ".4f"),
            self._spread(lambda draw: draw["two"].max(), ".4f"),
            self._spread(lambda draw: np.mean(draw["two"] >= 0.45), ".2%"),
            spread(shares, ".1%"),
            of_sinks,
        ]

    def bound_lines(self) -> list[list[str]]:
        """Lines of the table of bounds: how many times the exact constant each of them is."""
        lines = []
        for name, bound in BOUNDS.items():
            ratio = partial(_ratio, bound)
            worst = max(float(ratio(draw).max()) for draw in self.draws)
            broken = sum(int((~(ratio(draw) >= 1 - 1e-9)).sum()) for draw in self.draws)
            found = self._quantiles(ratio, ".4g")
            lines.append([self.where, name, *found, f"{worst:.4g}", str(broken)])
        worst = max(float(_of_theta(draw).max()) for draw in self.draws)
        found = self._quantiles(_of_theta, ".4g")
        above = sum(int((~(draw["theta"] <= 1)).sum()) for draw in self.draws)
        lines.append([self.where, "θ = 1 (Emadi 2026), of θ", *found, f"{worst:.4g}", str(above)])
        return lines

    @property
    def broken(self) -> int:
        """Rows whose exact constant exceeds the bound of Yudin et al."""
        return int(sum(draw["broken"].sum() for draw in self.draws))

    @property
    def mean_theta(self) -> float:
        """Mean of all rows of all draws."""
        return float(np.mean(np.concatenate([draw["theta"] for draw in self.draws])))

    @property
    def low_theta(self) -> float:
        """Share of rows with θ below 0.9."""
        return float(np.mean(np.concatenate([draw["theta"] for draw in self.draws]) < LOW))

    def loosest_row(self) -> list[str]:
        """Where the bound of Yudin et al. is farthest from the exact constant."""
        ratios = [yudin_ratio(draw) for draw in self.draws]
        seed = int(np.argmax([ratio.max() for ratio in ratios]))
        draw, at = self.draws[seed], int(np.argmax(ratios[seed]))
        place = [str(int(draw[name][at])) for name in ("layer", "head", "sample", "query")]
        exact, bound = draw["two"][at], draw["two_largest"][at]
        return [self.where, str(seed), *place, f"{exact:.4g}", f"{bound:.4g}",
                f"{bound / exact:.4f}"]  # fmt: skip

    def distribution(self, number: Callable[[Arrays], Any], points: Sequence[float]) -> Curve:
        """The share of rows of all draws whose number is at most each of the points."""
        values = np.sort(np.concatenate([np.asarray(number(draw)) for draw in self.draws]))
        shares = np.searchsorted(values, points, side="right") / len(values)
        return Curve(self.where, list(points), shares.tolist())

    def theta_by_layer(self) -> Curve:
        """The mean θ of each layer."""
        layers = np.concatenate([draw["layer"] for draw in self.draws])
        theta = np.concatenate([draw["theta"] for draw in self.draws])
        means = np.bincount(layers, theta) / np.bincount(layers)
        return Curve(self.where, [float(i + 1) for i in range(len(means))], means.tolist())

    def _spread(self, number: Callable[[Arrays], Any], form: str) -> str:
        return spread([float(number(draw)) for draw in self.draws], form)

    def _quantiles(self, number: Callable[[Arrays], Any], form: str) -> list[str]:
        """Quantiles of a number of every row, each over the draws."""
        found = np.array([np.quantile(number(draw), SHARES) for draw in self.draws])
        return [spread(values.tolist(), form) for values in found.T]


def head_means(draw: Arrays) -> Any:
    """The mean θ of each head that has rows."""
    heads = draw["layer"].astype(np.int64) * (int(draw["head"].max()) + 1) + draw["head"]
    counts = np.bincount(heads)
    return np.bincount(heads, draw["theta"])[counts > 0] / counts[counts > 0]


def spread(values: Sequence[float], form: str) -> str:
    """The mean of several draws, and their range if they differ in print."""
    low, middle, high = (
        format(v, form) for v in (min(values), float(np.mean(values)), max(values))
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def yudin_ratio(draw: Arrays) -> Any:
    """The bound of Yudin et al. as a multiple of the exact constant."""
    return _ratio(BOUNDS[YUDIN], draw)


def _of_theta(draw: Arrays) -> Any:
    """1 as a multiple of θ; infinite where θ is 0."""
    theta = draw["theta"]
    return np.divide(1.0, theta, out=np.full_like(theta, math.inf), where=theta > 0)


def _ratio(bound: Callable[[Arrays], Any], draw: Arrays) -> Any:
    """A bound as a multiple of the exact constant; 1 where both are 0."""
    exact, above = draw["two"], bound(draw)
    return np.divide(above, exact, out=np.ones_like(exact), where=(exact > 0) | (above > 0))
