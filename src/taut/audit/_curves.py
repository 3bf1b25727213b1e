"""The curves of a report: constants against exponents, and against step sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from taut._checks import exponent_name
from taut.audit._figures import Figure
from taut.audit._grid import Grid
from taut.audit._head_state import series
from taut.audit._lines import draw_lines
from taut.audit._record import Record
from taut.audit._tables import Table, number


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
    found = {
        "largest of all rows": [max(s.maxima[series(p)].max() for s in states) for p in norms],
        "mean of all rows": [sum(s.sums[series(p)].sum() for s in states) / total for p in norms],
    }
    if grids and set(norms) <= set(grids[0].norms):
        for what in ("worst", "random"):
            found[f"{what} directions, sampled rows, step {grids[0].epsilons[0]:g}"] = [
                max(getattr(g, what)[0, g.norms.index(p)] for g in grids) for p in norms
            ]
    exact = "Exact for 1, 2 and ∞"
    others = [exponent_name(p) for p in norms if series(p) not in ("one", "two")]
    meaning = (
        f"{exact}; upper bounds of every row for {', '.join(others)}." if others else exact + "."
    )
    places = [exponent_name(p) for p in norms]
    return _figure("Constants against the exponent p", meaning, "p", places, found)


def _against_steps(grids: Sequence[Grid], j: int) -> Figure:
    epsilons = grids[0].epsilons
    found = {
        f"{what} directions": [
            max(getattr(g, what)[i, j] for g in grids) for i in range(len(epsilons))
        ]
        for what in ("worst", "random")
    }
    upper = max(grid.upper[j] for grid in grids)
    rows = sum(grid.rows for grid in grids)
    norm = f"l{exponent_name(grids[0].norms[j])}"
    meaning = (
        f"Measured on {rows:,} sampled rows, the largest; their local constants, for steps "
        f"without size, are at most {upper:.4f}."
    )
    places = [f"{epsilon:g}" for epsilon in epsilons]
    return _figure(f"Constants in {norm} against the step size", meaning, "ε", places, found)


def _figure(
    title: str, meaning: str, axis: str, places: Sequence[str], found: Mapping[str, Sequence[float]]
) -> Figure:
    rows = [[name, *map(number, values)] for name, values in found.items()]
    table = Table(title, ["curve", *(f"{axis} = {place}" for place in places)], rows)
    says = f"{title}, with the limit 1/2: " + "; ".join(
        f"{name} from {min(values):.4f} to {max(values):.4f}" for name, values in found.items()
    )
    return Figure(title, meaning, draw_lines(places, found, axis=axis, title=says), table)
