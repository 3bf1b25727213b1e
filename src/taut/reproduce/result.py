"""The result of an experiment: claims of the paper beside our numbers, tables and curves."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

from taut._base.checks import exponent_name
from taut._base.json_files import plain

USED = ("torch", "transformers", "accelerate", "tokenizers", "sacrebleu", "datasets")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what we found, and whether they agree; None: no comparison."""

    statement: str
    paper: str
    found: str
    agrees: bool | None


@dataclass(frozen=True)
class ResultTable:
    """Rows of words and numbers under a header."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Curve:
    """A named line through points; ``dashed`` lines are bounds, ``points`` are not joined."""

    name: str
    x: list[float]
    y: list[float]
    dashed: bool = False
    points: bool = False


@dataclass(frozen=True)
class Plot:
    """Curves that share their axes; those of one name share their colour.

    ``names`` are words for y = 1, 2, …, from below; there is then a line for each.
    """

    title: str
    x: str
    y: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = False
    names: list[str] = field(default_factory=list)


@dataclass
class Result:
    """Everything that a run of an experiment leaves behind.

    Attributes
    ----------
    name, title
        Name and title of the experiment.
    settings
        What it was run with.
    claims, tables, plots
        What came out.
    remarks
        Sentences for the page: what agreed, what did not, what it means.
    compared
        What the claims are compared with: the paper, or an aim of our own.
    """

    name: str
    title: str
    settings: dict[str, Any]
    claims: list[Claim] = field(default_factory=list)
    tables: list[ResultTable] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    compared: str = "paper"

    @property
    def claims_header(self) -> list[str]:
        """The header of the table of claims."""
        return ["claim", self.compared, "found here", "agrees"]

    def to_json(self, command: str) -> str:
        """The record: everything above, with the command and the versions that made it."""
        from taut import __version__

        versions = {"taut": __version__, "numpy": np.__version__}
        versions["python"] = platform.python_version()
        versions |= {name: version(name) for name in USED if name in sys.modules}
        kept = {"command": command, "versions": versions, **asdict(self)}
        return json.dumps(plain(kept), indent=1, ensure_ascii=False) + "\n"


def never_above(found: Sequence[float], limit: float) -> bool:
    """Whether there are numbers and none exceeds a limit; NaN does."""
    return len(found) > 0 and all(value <= limit for value in found)


def ratio_plots(
    where: str, epsilons: Sequence[float], norms: Sequence[float], random: Any, worst: Any
) -> list[Plot]:
    """Largest ratios over step sizes, (step sizes, norms), along random and worst directions."""
    plots = []
    for values, said in ((random, "random"), (worst, "worst")):
        curves = [
            Curve(f"p = {exponent_name(p)}", list(epsilons), values[:, j].tolist())
            for j, p in enumerate(norms)
        ]
        title = f"{where}, {said} directions"
        curves.append(limit_curve("½", epsilons, 0.5))
        plots.append(Plot(title, "ε", "largest ratio, in the p-norm", curves, log_x=True))
    return plots


def limit_curve(name: str, x: Sequence[float], value: float) -> Curve:
    """A bound over all of x, also where x is one number."""
    ends = [min(x), max(x)] if min(x) < max(x) else [x[0] / 2, x[0] * 2]
    return Curve(name, ends, [value, value], dashed=True)
