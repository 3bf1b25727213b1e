"""Which samples hold the rows with the largest constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taut.audit.record import Record


def worst_samples(record: Record) -> list[int]:
    """The samples of the rows with the largest l2 constants of all heads, sorted."""
    states = [state for layer in record.layers for state in (layer.many, layer.few)]
    found = {int(sample) for state in states for sample in state.places["two"][:, 0]}
    return sorted(sample for sample in found if sample >= 0)


def shown_pictures(record: Record, others: dict[str, str]) -> dict[str, str]:
    """Pictures of the samples that hold these rows, from a record and from another one."""
    known = {**record.pictures, **others}
    shown = [str(sample) for sample in worst_samples(record)]
    return {sample: known[sample] for sample in shown if sample in known}
