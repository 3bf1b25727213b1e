"""The curves of a report: constants against exponents, and against step sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from taut._base.checks import exponent_name
from taut._base.number_text import number_text
from taut.audit.coverage import shown_rows
from taut.audit.report.figures import Figure
from taut.audit.report.svg_lines import draw_lines
from taut.audit.report.tables import ReportTable
from taut.audit.statistics.empirical_grid import GRID_KINDS, Grid
from taut.models import constant_key

if TYPE_CHECKING:
    from taut.audit.record import Record


# Said wherever steps of some size stand beside local constants.
LARGER_STEPS = (
    "A step of some size can move the weights by more than the local constant at its start says: "
    "on its way it comes to places where softmax is steeper. No step of any size exceeds ½."
)


class RatedCurve(NamedTuple):
    """The numbers of a curve, and what each of them is: exact, upper or lower."""

    name: str
    values: Sequence[float]
    kinds: Sequence[str]

    def texts(self) -> list[str]:
        """Each number, rounded to its safe side; bounds among exact numbers are marked."""
        mixed = len(set(self.kinds)) > 1
        return [
            number_text(value, kind=kind) + (f" ({kind})" if mixed else "")
            for value, kind in zip(self.values, self.kinds, strict=True)
        ]


def curves(record: Record) -> list[Figure]:
    """L_p against p, and for every p against the step size, with the largest of all layers."""
    grids = [layer.grid for layer in record.layers if layer.grid is not None and layer.grid.rows]
    norms = _norms(record)
    figures = [_against_norms(record, norms, grids)] if len(norms) > 1 else []
    if grids:
        figures += [_against_steps(grids, j) for j in range(len(grids[0].norms))]
    return figures


def _norms(record: Record) -> list[float]:
    states = [layer.state for layer in record.layers if layer.state.counts["rows"].any()]
    shared = set.intersection(*(set(state.norms) for state in states)) if states else set()
    return sorted({1.0, 2.0, math.inf, *shared}) if states else []


def _against_norms(record: Record, norms: Sequence[float], grids: Sequence[Grid]) -> Figure:
    states = [layer.state for layer in record.layers if layer.state.counts["rows"].any()]
    total = sum(int(state.counts["rows"].sum()) for state in states)
    keys = [constant_key(p) for p in norms]
    kinds = ["upper" if record.quick else states[0].numbers[key].kind for key in keys]
    largest = [max(s.maxima[key].max() for s in states) for key in keys]
    mean = [sum(s.sums[key].sum() for s in states) / total for key in keys]
    rows = shown_rows(record)
    found = [
        RatedCurve(f"largest of {rows}", largest, kinds),
        RatedCurve(f"mean of {rows}", mean, kinds),
    ]
    if grids and set(norms) <= set(grids[0].norms):
        for what in ("worst", "random"):
            name = f"{what} directions, sampled rows, step {grids[0].epsilons[0]:g} (lower)"
            most = [max(getattr(g, what)[0, g.norms.index(p)] for g in grids) for p in norms]
            found.append(RatedCurve(name, most, [GRID_KINDS[what]] * len(norms)))
    others = [exponent_name(p) for p, kind in zip(norms, kinds, strict=True) if kind == "upper"]
    exact = [] if record.quick else ["exact for 1, 2 and ∞"]
    bounds = [f"upper bounds for {', '.join(others)}"] if others else []
    meaning = f"{rows.capitalize()}: {'; '.join([*exact, *bounds])}."
    places = [exponent_name(p) for p in norms]
    return _figure("Constants against the exponent p", meaning, "p", places, found)


def _against_steps(grids: Sequence[Grid], j: int) -> Figure:
    epsilons = grids[0].epsilons
    found = [
        RatedCurve(
            f"{what} directions (lower)",
            [max(getattr(g, what)[i, j] for g in grids) for i in range(len(epsilons))],
            [GRID_KINDS[what]] * len(epsilons),
        )
        for what in ("worst", "random")
    ]
    upper = number_text(max(grid.upper[j] for grid in grids), kind="upper")
    rows = sum(grid.rows for grid in grids)
    norm = f"l{exponent_name(grids[0].norms[j])}"
    meaning = (
        f"Measured on {rows:,} sampled rows, the largest. Their local constants, for infinitely "
        f"small steps, are at most {upper}; larger steps may exceed that, and never ½."
    )
    places = [f"{epsilon:g}" for epsilon in epsilons]
    return _figure(f"Constants in {norm} against the step size", meaning, "ε", places, found)


def _figure(
    title: str, meaning: str, axis: str, places: Sequence[str], found: Sequence[RatedCurve]
) -> Figure:
    rows = [[curve.name, *curve.texts()] for curve in found]
    table = ReportTable(title, ["curve", *(f"{axis} = {place}" for place in places)], rows)
    says = f"{title}, with the limit 1/2: " + "; ".join(
        f"{curve.name} from {min(curve.values):.4f} to {max(curve.values):.4f}" for curve in found
    )
    lines = {curve.name: curve.values for curve in found}
    return Figure(title, meaning, draw_lines(places, lines, axis=axis, title=says), table)
