"""Audited attention beside the paper's random directions: what Figures 1 and 3 share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from taut._base.checks import exponent_name
from taut.reproduce.data_sets import read, short
from taut.reproduce.every_row import every_row
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable, ratio_plots
from taut.reproduce.row_ratios import below, bracket

if TYPE_CHECKING:
    from taut.audit import Record

Array = np.ndarray[Any, np.dtype[Any]]

NEAR = 0.499
REMARK = (
    "As in the paper, every row of scores is moved along a random direction, with every step and "
    "in every norm, and the largest ratio is reported. Beside it stand the largest local constants "
    "of the same rows, exact for p = 1, 2 and ∞, and what the worst direction reaches on a sample "
    "of them. A random direction misses most of a row of many keys: the last column shows the "
    "share of the worst direction's ratio that a random one reaches, for the same row and step, on "
    "average over the sample."
)
SHORT_ROWS = (
    "The largest random ratio of very many rows can be close to ½ all the same, "
    "because a row of two or three keys, at the beginning of a text, leaves a random "
    "direction little to miss."
)


def audited_models(
    models: tuple[str, ...], data: tuple[str, ...], options: Options, kind: str, *,
    full: int, quick: int, rows: int, size: int,
) -> dict[tuple[str, str], MovedRows]:  # fmt: skip
    """Audits of every model on every data set, by their short names."""
    count = options.size(full, quick)
    found: dict[tuple[str, str], MovedRows] = {}
    for source in data if models else ():
        samples = read(source, count)
        if samples.kind != kind:
            raise ValueError(f"this figure needs {kind}, {source} is {samples.kind}")
        for model in models:
            name = Path(model).name.removesuffix(".gguf") or model
            if (name, short(source)) in found:
                raise ValueError(
                    f"two models or data sets are called {name} on {short(source)}: one of them "
                    "must be renamed, or left out"
                )
            found[name, short(source)] = audited_model(model, name, samples, options, rows, size)
    return found


class MovedRows(NamedTuple):
    """An audit, and what random directions reach on all of its rows."""

    record: Record
    random: Array  # the largest ratios, (step sizes, norms)
    moved: int


def audited_model(
    place: str, label: str, samples: Any, options: Options, rows: int, size: int
) -> MovedRows:
    """The audit of one model, and a random step of every row; one that was stopped goes on.

    On ``rows`` rows of every layer and sample there is a step along the worst direction, too.
    """
    from taut.audit import run
    from taut.reproduce.random_steps import RandomSteps

    count, epsilons = len(samples.items), sorted(options.epsilons)
    record = run(
        place, samples, name=label, folder=options.folder / "audits", progress=True,
        dtype="float32", batch_size=size, limit=count, norms=options.norms,
        epsilons=epsilons, seed=options.seed, sampled=count, rows=rows,
    )  # fmt: skip
    if not record.complete:
        raise KeyboardInterrupt("stopped before all of the data was seen")
    if not record.layers:
        raise ValueError(f"no attention was seen in {label}")
    found = every_row(
        place, samples, RandomSteps(epsilons, options.norms, options.seed), size=size,
        folder=options.folder / "random-steps",
        key={"epsilons": epsilons, "norms": list(options.norms), "seed": options.seed},
    )  # fmt: skip
    return MovedRows(record, found["largest"].max(axis=0), int(found["rows"].sum()))


class AttentionRatios(NamedTuple):
    """What the layers of one audit say together; arrays are (step sizes, norms) or (norms,)."""

    where: str
    norms: Sequence[float]
    epsilons: Sequence[float]
    random: Array
    worst: Array  # of the sample
    lower: Array  # largest local constants of all rows: both sides are the same for 1, 2 and ∞
    upper: Array
    counts: Array  # of rows of the sample, by the number of their keys
    shares: Array  # of the worst ratio that random directions reach, summed, by keys and norms
    moved: int  # rows along whose directions ratios were measured
    rows: int
    exact: float  # the largest exact l2 constant of all rows

    @classmethod
    def of(cls, where: str, found: MovedRows) -> AttentionRatios:
        """The largest of all layers."""
        from taut.models import constant_key

        layers = found.record.layers
        grids = [layer.grid for layer in layers if layer.grid is not None]
        norms = grids[0].norms
        counts, shares = (sum(getattr(g, what) for g in grids) for what in ("counts", "shares"))
        states = [state for layer in layers for state in (layer.many, layer.few)]

        def largest(key: str) -> float:
            return float(max(state.maxima[key].max() for state in states))

        upper = np.array([largest(constant_key(p)) for p in norms])
        exact = np.array([p in (1.0, 2.0, np.inf) for p in norms])
        return cls(
            where, norms, list(grids[0].epsilons), found.random,
            np.max([grid.worst for grid in grids], axis=0),
            np.where(exact, upper, largest("two")), upper, counts=counts, shares=shares,
            moved=found.moved, rows=sum(int(state.counts["rows"].sum()) for state in states),
            exact=largest("two"),
        )  # fmt: skip

    @property
    def largest(self) -> float:
        """The largest ratio along a random direction."""
        return float(self.random.max())

    def claims(self) -> list[Claim]:
        """That neither random directions nor exact constants exceed ½."""
        return [
            Claim(f"{self.where}: one random direction for each of {self.moved:,} rows, p and ε",
                  "below 0.5", f"largest {below(self.largest)}", self.largest < 0.5),
            Claim(f"{self.where}: exact l2 constants of all {self.rows:,} rows", "at most 0.5",
                  f"largest {below(self.exact)}", self.exact <= 0.5),
        ]  # fmt: skip

    def lines(self) -> list[list[str]]:
        """A line of the table for each norm, at the smallest step."""
        means = self.shares.sum(axis=0) / self.counts.sum()
        return [
            [self.where, exponent_name(p), f"{self.random[0, j]:.4f}", f"{self.worst[0, j]:.4f}",
             bracket(self.lower[j], self.upper[j]), f"{means[j]:.3f}"]
            for j, p in enumerate(self.norms)
        ]  # fmt: skip

    def by_keys(self) -> Curve:
        """The mean share of the worst ratio by the number of keys, in l2 or the first norm."""
        bins = np.flatnonzero(self.counts)
        two = self.norms.index(2.0) if 2.0 in self.norms else 0
        places = [float(2 ** (b + 1)) for b in bins]
        return Curve(self.where, places, (self.shares[bins, two] / self.counts[bins]).tolist())


def attention_result(
    name: str, title: str, audits: dict[tuple[str, str], MovedRows], options: Options,
    near: list[Claim],
) -> Result:  # fmt: skip
    """The page of audits: ratios along random and worst directions, beside exact constants."""
    found = [
        AttentionRatios.of(f"{model} on {data}", audit) for (model, data), audit in audits.items()
    ]
    claims = [claim for one in found for claim in one.claims()]
    plots = [
        plot for one in found
        for plot in ratio_plots(one.where, one.epsilons, one.norms, one.random, one.worst)
    ]  # fmt: skip
    for claim in near:
        reached = max(one.largest for one in found)
        claims.append(replace(claim, found=f"largest {below(reached)}", agrees=reached >= NEAR))
    curves = [one.by_keys() for one in found]
    several = any(len(curve.x) > 1 for curve in curves)  # vision models have one length
    if several:
        plots.append(
            Plot("What a random direction reaches of the worst one, l2", "keys of a row, at most",
                 "mean share", curves, log_x=True, log_y=True)
        )  # fmt: skip
    header = ["where", "p", "random, largest of all rows", "worst, largest of the sample",
              "local constant, largest of all rows", "mean share, sample"]  # fmt: skip
    rows = [line for one in found for line in one.lines()]
    return Result(
        name,
        title,
        {"norms": list(options.norms), "epsilons": sorted(options.epsilons), "seed": options.seed,
         "samples": [audit.record.samples for audit in audits.values()],
         "rows moved": [one.moved for one in found],
         "rows of the sample": [int(one.counts.sum()) for one in found]},
        claims,
        [ResultTable(f"Steps of {sorted(options.epsilons)[0]:g}", header, rows)],
        plots,
        [REMARK, *(["", SHORT_ROWS] if several else [])],
    )  # fmt: skip
