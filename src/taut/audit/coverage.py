"""How the rows of a record were read, and which share of them, in sentences for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.audit.few_keys import FEW_KEYS

if TYPE_CHECKING:
    from taut.audit.record import Record


def coverage_sentences(record: Record) -> list[str]:
    """What was measured of all the rows that the data has, and how their scores were read."""
    return [*_quick(record), *_drawn(record), *_few(record), *_read(record)]


def shown_rows(record: Record) -> str:
    """The rows whose numbers are shown, in a few words.

    Examples
    --------
    >>> from taut.audit import Record
    >>> shown_rows(Record({}, {}, {}))
    'all rows'
    """
    rows = "the rows drawn" if record.drawn else "all rows"
    apart = any(x.few.counts["rows"].any() and x.state is x.many for x in record.layers)
    return f"{rows} with at least {FEW_KEYS} keys" if apart else rows


def _few(record: Record) -> list[str]:
    few = sum(int(layer.few.counts["rows"].sum()) for layer in record.layers)
    if not few:
        return []
    only = sum(layer.state is layer.few for layer in record.layers)
    text = (
        f"{few:,} rows see fewer than {FEW_KEYS} keys. They are kept apart, because a row of two "
        "keys reaches ½ as soon as both weigh the same."
    )
    if only == len(record.layers):
        return [f"All rows see fewer than {FEW_KEYS} keys: constants near ½ are nothing special."]
    return [f"{text} {only} layers have no other rows." if only else text]


def _quick(record: Record) -> list[str]:
    if not record.quick:
        return []
    return [
        "A first look: constants are bounded by twice p(1 − p), with p the largest weight of a "
        "row. In l1 and l∞ this is the constant, up to rounding; that in l2 is at least half of it."
    ]


def _drawn(record: Record) -> list[str]:
    if not record.drawn:
        return []
    groups = [group for layer in record.measured for group in (layer.many, layer.few)]
    measured = sum(int(group.counts["rows"].sum()) for group in groups)
    skipped = sum(int(layer.many.counts["skipped"].sum()) for layer in record.measured)
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
