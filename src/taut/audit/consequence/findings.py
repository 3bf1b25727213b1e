"""What stands out where consequence was estimated: heads whose constant misleads."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from taut.audit.consequence.columns import RANKED_BY, is_measured

if TYPE_CHECKING:
    from taut.audit.record import Record

HeadRow = dict[str, Any]
FEWEST = 4  # heads, of which a median says what is usual
UNHEARD = 0.1  # times the median consequence, up to which a head is hardly listened to
HEARD = 3.0  # times the median consequence, from which on a head is listened to more than others
LOOKED_FOR = (
    f" Among consequences: heads of at most {UNHEARD:g} or at least {HEARD:g} times the median "
    "whose constants say the opposite, and layers where it could not be estimated."
)


class ConsequenceFinding(NamedTuple):
    """Kind, sentence, advice and heads of a finding."""

    kind: str
    text: str
    advice: str
    heads: tuple[str, ...]


def consequence_findings(record: Record) -> list[ConsequenceFinding]:
    """What the estimates say that constants do not."""
    rows = [row for row in record.heads if row["rows"] and is_measured(row)]
    found = _unknown(record)
    if len(rows) < FEWEST:
        return found
    constant = median(row["mean"] for row in rows)
    usual = median(row[RANKED_BY] for row in rows)
    sharp = [r for r in rows if r["mean"] > constant and r[RANKED_BY] <= UNHEARD * usual]
    blunt = [r for r in rows if r["mean"] < constant and r[RANKED_BY] >= HEARD * usual]
    if sharp:
        most = max(sharp, key=lambda row: row["mean"])
        text = (
            f"{len(sharp)} of {len(rows)} heads are sharper than the median and hardly listened "
            f"to: noise on their scores has at most {UNHEARD:g} times the consequence of the "
            f"median head ({_said(most)})."
        )
        found.append(ConsequenceFinding("sharp but unheard", text, _UNHEARD, _names(sharp)))
    if blunt:
        most = max(blunt, key=lambda row: row[RANKED_BY])
        text = (
            f"{len(blunt)} of {len(rows)} heads have a constant below the median and much "
            f"consequence: at least {HEARD:g} times that of the median head ({_said(most)})."
        )
        found.append(ConsequenceFinding("blunt but heard", text, _HEARD, _names(blunt)))
    return found


_UNHEARD = "Their constants are large, but little follows from them on these data."
_HEARD = "Noise and quantisation matter more here than their constants suggest."


def _said(row: HeadRow) -> str:
    return (
        f"{row['layer']} head {row['head']}: constant {row['mean']:.3f}, KL {row[RANKED_BY]:.2g}, "
        "estimate"
    )


def _names(rows: list[HeadRow]) -> tuple[str, ...]:
    return tuple(f"{row['layer']} head {row['head']}" for row in rows)


def _unknown(record: Record) -> list[ConsequenceFinding]:
    """Layers whose consequence could not be estimated, or not all of it, with the reasons."""
    reasons: dict[str, list[str]] = {}
    for layer in record.layers:
        if layer.consequence is not None and layer.consequence.reason:
            reasons.setdefault(layer.consequence.reason, []).append(layer.name)
        if layer.consequence is not None and layer.consequence.broken.any():
            reasons.setdefault("derivatives were not finite", []).append(layer.name)
    found = []
    for reason, layers in reasons.items():
        where = f"{len(layers)} layers" if len(layers) > 1 else "one layer"
        text = f"Consequence could not be estimated in full in {where} ({layers[0]}): {reason}."
        found.append(ConsequenceFinding("consequence unknown", text, "", tuple(layers)))
    return found
