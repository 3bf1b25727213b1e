"""The consequences of a record in a sentence, for the terminal and the report."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from taut.audit.consequence.noise import KINDS, NOISE, kl_column

if TYPE_CHECKING:
    from taut.audit.record import Record


def consequence_sentence(record: Record) -> str:
    """How far noise on one head is estimated to move the prediction; empty if nothing is known."""
    heads, parts = record.heads, []
    for kind in KINDS:
        name = kl_column(kind)
        known = [row[name] for row in heads if math.isfinite(row.get(name, math.nan))]
        if known:
            size = f"{NOISE[kind]:g}" if kind == "scores" else f"{NOISE[kind]:.0%}"
            parts.append(f"{size} on {kind} {median(known):.2g} / {max(known):.2g}")
    if not parts:
        return ""
    return (
        "Consequence (estimate, not a bound): KL divergence of a prediction, in nats, for "
        "independent noise on one head, in the median head / in the largest: "
        f"{'; '.join(parts)}."
    )
