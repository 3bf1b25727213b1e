"""Runs of several methods and seeds side by side: means, ranges and paired tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

from taut._base.optional import needing
from taut.reproduce.result import ResultTable

Facts = dict[str, Any]
Number = Callable[[Facts], float | None]


class Difference(NamedTuple):
    """Differences of a method from the base, seed by seed, and the p-value of a paired t-test."""

    values: list[float]
    p: float

    def __str__(self) -> str:
        if not self.values:
            return "–"
        if math.isnan(self.p):
            return spread(self.values, signed=True)
        return f"{spread(self.values, signed=True)}, p = {self._p_text()}"

    def _p_text(self) -> str:
        """Two places, and more where those would hide on which side of 0.05 it is, or be zeros."""
        if self.p < 0.01:
            return f"{self.p:.1g}"
        return f"{self.p:.3f}" if 0.045 <= self.p < 0.055 else f"{self.p:.2f}"


class ComparedRuns:
    """The facts of all runs, by method, in the order of the runs."""

    def __init__(self, facts: Sequence[Facts]) -> None:
        self.methods: dict[str, list[Facts]] = {}
        for one in facts:
            self.methods.setdefault(one["recipe"]["method"], []).append(one)
        self.whole = [one for one in facts if "failed" not in one]
        if not self.whole:
            raise ValueError(f"all runs broke down: {'; '.join(self.failed())}")

    def values(self, method: str, number: Number) -> list[float]:
        """The numbers of the runs of a method that did not break down."""
        found = (number(one) for one in self.methods[method] if "failed" not in one)
        return [value for value in found if value is not None]

    def difference(self, method: str, number: Number) -> Difference:
        """Differences from the base, seed by seed; three seeds say little, whatever the test."""
        runs = {
            name: {o["recipe"]["seed"]: number(o) for o in self.methods[name] if "failed" not in o}
            for name in ("base", method)
        }
        pairs = [
            (value, other)
            for seed, value in runs[method].items()
            if value is not None and (other := runs["base"].get(seed)) is not None
        ]
        values = [one - other for one, other in pairs]
        return Difference(values, _p_value(values))

    def seeds(self, method: str) -> str:
        """How many runs there are, and how many of them broke down."""
        runs = self.methods[method]
        whole = sum("failed" not in one for one in runs)
        return str(whole) if whole == len(runs) else f"{whole} of {len(runs)}"

    def row(self, method: str, numbers: Sequence[Number], digits: int = 2) -> list[str]:
        """Mean and range of each number."""
        return [spread(self.values(method, number), digits) for number in numbers]

    def failed(self) -> list[str]:
        """What broke down, and how."""
        return [
            f"{method}, seed {one['recipe']['seed']}: {one['failed']}"
            for method, runs in self.methods.items()
            for one in runs
            if "failed" in one
        ]


def _p_value(values: list[float]) -> float:
    """The two-sided p-value of a mean of 0; NaN where there is nothing to judge by."""
    with needing("p-values need scipy", "seq2seq"):
        from scipy.stats import ttest_1samp

    if len(values) < 2 or len(set(values)) == 1:
        return math.nan
    return float(ttest_1samp(values, 0.0).pvalue)


def spread(values: Sequence[float], digits: int = 2, *, signed: bool = False) -> str:
    """Mean and range, or a dash without any."""
    if not values:
        return "–"
    sign = "+" if signed else ""
    middle, low, high = (f"{v:{sign}.{digits}f}" for v in (mean(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"


def before_and_after(name: str) -> tuple[Number, Number]:
    """A fact of the model before and after its training."""
    return (lambda one: one["before"].get(name)), (lambda one: one["after"].get(name))


def sensitivities(found: ComparedRuns) -> ResultTable:
    """What the methods did to singular values, penalties, constants and the training itself."""
    names = {"sigma_max": "largest singular value", "AM": "AM", "LA": "LA", "LF": "LF",
             "constant_mean": "mean local constant",
             "constant_largest": "largest local constant"}  # fmt: skip
    base = mean(found.values("base", lambda one: one.get("step_seconds")) or [math.nan])
    rows = []
    for method in found.methods:
        row = [method]
        for name in names:
            first, last = before_and_after(name)
            digits = 3 if "constant" in name else 1
            start = found.values(method, first)
            row.append(
                f"{mean(start):.{digits}f} → {spread(found.values(method, last), digits)}"
                if start else "–"
            )  # fmt: skip
        row += found.row(method, [lambda one: one["score_largest"]], 1)
        row += found.row(method, [lambda one: one["gradient_median"]], 2)
        row += found.row(method, [lambda one: one["gradient_largest"]], 1)
        paces = found.values(method, lambda one: one.get("step_seconds"))
        row.append(spread([pace / base for pace in paces]))
        rows.append(row)
    header = ["method", *names.values(), "largest score", "gradient norm, median of each 20th step",
              "largest of these", "median time of a step, of the base's"]  # fmt: skip
    return ResultTable("What the constraints did, before → after training", header, rows)


def every_run(found: ComparedRuns, measures: Mapping[str, Number]) -> ResultTable:
    """The numbers behind the means."""
    facts: dict[str, tuple[Number, int]] = {name: (one, 2) for name, one in measures.items()}
    facts["validation loss"] = (lambda one: one["valid_loss"], 4)
    facts["best step"] = (lambda one: one["best_step"], 0)
    facts["largest singular value"] = (lambda one: one["after"]["sigma_max"], 2)
    facts["mean local constant"] = (lambda one: one["after"].get("constant_mean"), 4)
    facts["seconds of a step, median"] = (lambda one: one.get("step_seconds"), 3)
    rows = []
    for one in found.whole:
        values = [(number(one), digits) for number, digits in facts.values()]
        told = ["–" if value is None else f"{value:.{digits}f}" for value, digits in values]
        rows.append([one["recipe"]["method"], str(one["recipe"]["seed"]), *told])
    return ResultTable("Every run", ["method", "seed", *facts], rows)


def kind(method: str) -> str:
    """A method without its strength."""
    return method.split(", ")[0]
