"""The verdict on a record: one or two sentences that somebody reads first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.audit.findings import findings
from taut.audit.reference import reference_size, share_below

if TYPE_CHECKING:
    from taut.audit.record import Record

# Below the first share of all reference heads a model is calm, above the second it is sharp.
CALM, SHARP = 0.25, 0.75
# Findings that say something may go wrong; the others describe what heads do.
GRAVE = ("broken scores", "missed", "near the limit", "far above the others", "wide scores")


def verdict(record: Record) -> str:
    """Say how sensitive the attention of a model is, where that stands, and what stands out.

    Examples
    --------
    >>> from taut.audit import Record
    >>> verdict(Record({}, {}, {}))
    'No attention was measured.'
    """
    heads = [row for row in record.heads if row["rows"]]
    if not heads:
        return "No attention was measured."
    return f"{_level(record, mean_of_heads(record))} {_stands_out(record, len(heads))}"


def mean_of_heads(record: Record) -> float:
    """The mean over all heads of their mean l2 constants; NaN if there is none."""
    means = [row["mean"] for row in record.heads if row["rows"]]
    return sum(means) / len(means) if means else float("nan")


def standing(value: float) -> str:
    """Where a mean constant stands among those of reference models, in words."""
    heads, models = reference_size()
    share = share_below(value)
    return f"higher than {share:.0%} of the {heads} heads of {models} trained models"


def _level(record: Record, mean: float) -> str:
    if record.quick:
        return (
            f"A first look: heads have a constant of at most {mean:.3f} on average, where ½ is the "
            "limit."
        )
    sample = " in the sample of rows that was drawn" if record.drawn else ""
    share = share_below(mean)
    words = "Calm" if share < CALM else "Sharp" if share > SHARP else "As sensitive as usual"
    return (
        f"{words}: on average its heads have a constant of {mean:.3f}{sample}, where ½ is the "
        f"limit. That is {standing(mean)} that taut was tried on."
    )


def _stands_out(record: Record, heads: int) -> str:
    every = findings(record)
    found = {each.kind: each for each in every if each.kind in GRAVE}
    parts = []
    if "missed" in found:
        parts.append("some attention could not be seen")
    if "broken scores" in found:
        parts.append("some scores are NaN or infinite")
    named = {
        name
        for kind, each in found.items()
        if kind not in ("missed", "broken scores")
        for name in each.heads
    }
    if named:
        verb = "stands" if len(named) == 1 else "stand"
        parts.append(f"{len(named)} of {heads} heads {verb} out")
    if not parts:
        return "Nothing grave stands out." if every else "Nothing stands out."
    said = ", and ".join(parts)
    return f"{said[0].upper()}{said[1:]}."
