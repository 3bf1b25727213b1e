"""Records side by side: several models, or one before and after training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from taut.audit.record import Record


class ComparedHead(NamedTuple):
    """One head in several records; None stands for a record that does not have it."""

    layer: str
    head: int
    means: list[float | None]
    largest: list[float | None]

    @property
    def change(self) -> float | None:
        """How far the mean moved from the first record to the last; None if one lacks it."""
        first, last = self.means[0], self.means[-1]
        return None if first is None or last is None else last - first


def compare(*records: Record) -> list[ComparedHead]:
    """Mean and largest constants of every head in each record, in the order of the models.

    Heads are matched by the name of their layer and their number.

    Examples
    --------
    >>> import torch
    >>> from taut import audit
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> before = audit.run(layer, [torch.randn(3, 5, 8)])
    >>> after = audit.run(layer, [10 * torch.randn(3, 5, 8)])
    >>> [head.change < 0 for head in compare(before, after)]  # one key gets all the weight
    [True, True]
    """
    if len(records) < 2:
        raise ValueError("compare takes at least two records")
    rows: dict[tuple[str, int], list[dict[str, Any] | None]] = {}
    for index, record in enumerate(records):
        for row in record.heads:
            key = (row["layer"], row["head"])
            rows.setdefault(key, [None] * len(records))[index] = row if row["rows"] else None
    return [
        ComparedHead(
            layer,
            head,
            [None if row is None else row["mean"] for row in found],
            [None if row is None else row["largest"] for row in found],
        )
        for (layer, head), found in rows.items()
    ]


def record_differences(*records: Record) -> list[str]:
    """Say in what records differ besides their models: changes may come from there."""
    found = []
    classes = [str(record.model.get("class", "?")) for record in records]
    if len(set(classes)) > 1:
        found.append(different_classes(classes))
    digests = [record.data.get("digest") for record in records]
    if None in digests:
        found.append("Whether the data are the same is not recorded.")
    elif len(set(digests)) > 1:
        told = ", ".join(f"{r.data.get('source')} ({r.data.get('samples')})" for r in records)
        found.append(f"The data differ, and constants depend on them: {told}.")
    for key in dict.fromkeys(key for record in records for key in record.settings):
        values = [record.settings.get(key) for record in records]
        if any(value != values[0] for value in values):
            found.append(f"Settings differ: {key} {', '.join(map(str, values))}.")
    for number, record in enumerate(records, start=1):
        if not record.complete:
            part = "partial" if record.shard is None else str(record.shard)
            found.append(f"Record {number} is {part}: {record.samples} samples were seen.")
    return found


def different_classes(classes: list[str]) -> str:
    """A sentence for models that are built differently."""
    return f"The models are of different classes: {', '.join(classes)}."
