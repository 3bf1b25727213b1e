"""How the rows of a record were read, and which share of them, in sentences for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taut.audit.record import Record


def coverage_sentences(record: Record) -> list[str]:
    """What was measured of all the rows that the data has, and how their scores were read."""
    return [*_quick(record), *_drawn(record), *_read(record)]


def _quick(record: Record) -> list[str]:
    if not record.quick:
        return []
    return [
        "A first look: constants are bounded by twice p(1 − p), with p the largest weight of a "
        "row. In l1 and l∞ this is the constant, up to rounding; in l2 it is at least half of it."
    ]


def _drawn(record: Record) -> list[str]:
    if not record.drawn:
        return []
    measured, skipped = (
        sum(int(layer.state.counts[name].sum()) for layer in record.layers)
        for name in ("rows", "skipped")
    )
    share = measured / (measured + skipped)
    return [
        f"Only some queries were drawn: {measured:,} of {measured + skipped:,} rows were measured "
        f"({share:.2g} of them). Means, quantiles and shares are those of the sample, and the "
        "largest constants are lower bounds. --queries all measures every row."
    ]


def _read(record: Record) -> list[str]:
    if not record.layers:
        return []
    fused = sum(layer.fused for layer in record.layers)
    written = len(record.layers) - fused
    if not written:
        return ["The model ran its fused attention; scores were computed beside it, in blocks."]
    if not fused:
        return ["The model wrote out its scores, with all terms that they have."]
    return [
        f"{fused} of {len(record.layers)} layers ran fused attention, whose scores were computed "
        f"beside it in blocks; {written} wrote out their scores."
    ]
