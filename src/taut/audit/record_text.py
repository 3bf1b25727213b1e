"""A record in a few lines: its model, and its most sensitive heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.audit.consequence.columns import RANKED_BY, is_measured

if TYPE_CHECKING:
    from taut.audit.record import Record


def record_text(record: Record) -> str:
    """The lines of ``str(record)``."""
    lines = [f"{record.model.get('name', 'model')}: {record.samples} samples"]
    for row in [row for row in record.ranked[:10] if row["rows"]]:
        line = f"  {row['layer']} head {row['head']}: mean {row['mean']:.3f}, largest "
        line += f"{row['largest']:.3f} of 0.5"
        if is_measured(row):
            line += f", {RANKED_BY} {row[RANKED_BY]:.2g} (estimate)"
        lines.append(line)
    return "\n".join(lines)
