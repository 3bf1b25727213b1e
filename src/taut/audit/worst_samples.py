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
