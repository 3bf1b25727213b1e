"""The columns of consequence in the table of heads. All are estimates, and say so."""

from __future__ import annotations

import numpy as np

from taut.audit.consequence.head_consequence import Array, HeadConsequence
from taut.audit.consequence.noise import KINDS, NOISE, kl_column
from taut.audit.statistics.column import Column

RANKED_BY = kl_column("scores")
_WHERE = {
    "scores": f"on its scores, standard deviation {NOISE['scores']:g}",
    "keys": f"on its keys, {NOISE['keys']:g} times their root mean square",
    "values": f"on its values, {NOISE['values']:g} times their root mean square",
}


def consequence_columns() -> list[Column]:
    """The columns, in their order."""
    return [column for kind in KINDS for column in _pair(kind)]


def consequence_values(found: HeadConsequence | None, heads: int) -> dict[str, Array]:
    """The numbers of every head of a layer, by column; NaN where nothing was measured."""
    found = found or HeadConsequence(heads)
    values: dict[str, Array] = {}
    for kind in KINDS:
        mean, error = _pair(kind)
        values |= {mean.name: found.mean(kind), error.name: found.error(kind)}
    return values


def is_measured(row: dict[str, float]) -> bool:
    """Whether the consequence of a head, a row of ``Record.heads``, is known."""
    return bool(np.isfinite(row.get(RANKED_BY, np.nan)))


def _pair(kind: str) -> tuple[Column, Column]:
    name = kl_column(kind)
    meaning = (
        f"predicted KL divergence of a prediction, in nats, for independent noise {_WHERE[kind]}"
    )
    return (
        Column(name, "estimate", f"KL, {kind}", meaning, form=".3g"),
        Column(
            f"{name}_error",
            "estimate",
            f"± KL, {kind}",
            f"standard error of {name} over samples and drawn labels",
            form=".1g",
        ),
    )
