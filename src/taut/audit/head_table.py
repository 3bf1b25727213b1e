"""The table of heads: one row for each head, and what the numbers in its columns are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taut.audit.consequence.columns import consequence_columns, consequence_values
from taut.audit.few_keys import COLUMNS as FEW_COLUMNS
from taut.audit.few_keys import few_keys_columns
from taut.audit.layer_record import LayerRecord
from taut.audit.sinks import COLUMNS as SINK_COLUMNS
from taut.audit.statistics import STATISTICS, optional
from taut.audit.statistics.column import WORDS, Column
from taut.audit.statistics.empirical_grid import GRID_KINDS
from taut.audit.statistics.head_state import HeadState, row_numbers
from taut.audit.statistics.statistic import Statistic

PLACE = (
    Column(
        "layer",
        "",
        "layer",
        "module that runs the softmax, and which one if it has several",
        form=WORDS,
    ),
    Column("head", "", "head", "number of the head, from 0", form="d"),
)
TOKEN = Column(
    "token", "", "token", "token of the row with the largest l2 constant, if known", form=WORDS
)


def head_columns(
    norms: Sequence[float],
    *,
    drawn: bool,
    quick: bool,
    consequence: bool = False,
    theta: bool = False,
) -> list[Column]:
    """The columns of the table, in their order.

    ``norms`` are the exponents besides 1, 2 and ∞; ``drawn`` says whether rows were drawn,
    ``quick`` whether constants were only bounded, ``consequence`` whether it was estimated, and
    ``theta`` whether the constants from l∞ to l1 were measured.
    """
    state = HeadState(1, norms, theta=theta)
    found = [
        column.labelled(drawn=drawn, quick=quick)
        for column in (
            *(c for each in _chosen(state) for c, _ in each.columns(state)),
            *SINK_COLUMNS,
            *FEW_COLUMNS,
        )
    ]
    return [*PLACE, *found, *(consequence_columns() if consequence else ()), TOKEN]


def has_theta(layers: Sequence[LayerRecord]) -> bool:
    """Whether the constants from l∞ to l1 were measured."""
    return bool(layers) and layers[0].state.theta


def head_rows(
    layer: LayerRecord, tokens: dict[str, str], *, consequence: bool = False
) -> list[dict[str, Any]]:
    """One row for each head of a layer."""
    columns = [
        (column.name, values.tolist())
        for each in _chosen(layer.state)
        for column, values in each.columns(layer.state)
    ]
    columns += [("sink", layer.sinks.share.tolist()), ("sink_key", layer.sinks.usual)]
    columns += [(column.name, values.tolist()) for column, values in few_keys_columns(layer)]
    if consequence:
        found = consequence_values(layer.consequence, layer.state.heads)
        columns += [(name, values.tolist()) for name, values in found.items()]
    return [
        {
            "layer": layer.name,
            "head": h,
            **{name: values[h] for name, values in columns},
            "token": tokens.get(f"{layer.name}/{h}", ""),
        }
        for h in range(layer.state.heads)
    ]


def _chosen(state: HeadState) -> tuple[Statistic, ...]:
    return (*STATISTICS, *optional(theta=state.theta))


def kept_kinds(
    norms: Sequence[float], *, drawn: bool, quick: bool, theta: bool = False
) -> dict[str, Any]:
    """What the numbers are that a record keeps of a layer: sums, maxima and histograms by key."""
    bounded = ("one", "two") if quick else ()
    rows = {
        key: "sample" if drawn else "upper" if key in bounded else number.kind
        for key, number in row_numbers(norms, theta=theta).items()
    }
    return {"rows": rows, "affinity": "upper", "grid": GRID_KINDS, "consequence": "estimate"}
