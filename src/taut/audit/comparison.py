"""What can be compared between records: the same heads, or only their distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from taut._base.html_table import html_lines, html_table
from taut.audit.compare import ComparedHead, compare, different_classes, record_differences
from taut.audit.verdict import mean_of_heads

if TYPE_CHECKING:
    from taut.audit.record import Record

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHOWN = 10  # heads in a notebook, those that changed most


class Comparison(NamedTuple):
    """Several records side by side.

    Attributes
    ----------
    kind
        ``"heads"`` where the records are of one model, so that each head has a change; else
        ``"distributions"``.
    verdict
        What the comparison says, in a sentence or two.
    reasons
        Why heads are not compared one by one; empty if they are.
    differences
        In what the records differ besides their models.
    heads
        Every head that is in all records, with its means; empty for distributions.
    lost
        Number of heads that are not in every record.
    quantiles
        For each record, the quantiles 5, 25, 50, 75 and 95 % of the mean constants of its heads.
    """

    kind: Literal["heads", "distributions"]
    verdict: str
    reasons: list[str]
    differences: list[str]
    heads: list[ComparedHead]
    lost: int
    quantiles: list[list[float]]

    def _repr_html_(self) -> str:
        """The comparison in a notebook: its verdict, what differs, and its heads."""
        told = html_lines("\n".join([self.verdict, *self.reasons, *self.differences]))
        if not self.heads:
            columns = ["record", *(f"{share:.0%}" for share in SHARES)]
            lines = [
                [f"{number}", *(f"{value:.4f}" for value in quantiles)]
                for number, quantiles in enumerate(self.quantiles, start=1)
            ]
            return told + html_table(columns, lines, numbers=range(len(columns)))
        ranked = sorted(self.heads, key=lambda head: -abs(head.change or 0.0))[:SHOWN]
        columns = [
            "layer",
            "head",
            *(f"mean {n + 1}" for n in range(len(self.quantiles))),
            "change",
        ]
        lines = [
            [head.layer, f"{head.head}", *(f"{mean:.4f}" for mean in head.means),
             f"{head.change:+.4f}"]
            for head in ranked
        ]  # fmt: skip
        return told + html_table(columns, lines, numbers=range(1, len(columns)))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        heads = [{**head._asdict(), "change": head.change} for head in self.heads]
        return {**self._asdict(), "heads": heads}


def comparison(*records: Record) -> Comparison:
    """Compare what can be compared: heads of one model before and after, or distributions.

    Heads are compared one by one if the records have the same layers with as many heads, and models
    of one class. Constants of a first look, which are bounds, are never set against exact ones.

    Examples
    --------
    >>> import torch
    >>> from taut import audit
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> other = torch.nn.TransformerEncoderLayer(8, 4, 16, batch_first=True).eval()
    >>> data = [torch.randn(3, 9, 8)]
    >>> comparison(audit.run(layer, data), audit.run(layer, data)).kind
    'heads'
    >>> comparison(audit.run(layer, data), audit.run(other, data)).kind
    'distributions'
    """
    every = compare(*records)
    reasons = _apart(records)
    there = [head for head in every if None not in head.means]
    if not reasons and not there:
        reasons = ["No head has rows in every record."]
    quantiles = [_quantiles(record) for record in records]
    return Comparison(
        "distributions" if reasons else "heads",
        _verdict(records, there, reasons),
        reasons,
        [each for each in record_differences(*records) if each not in reasons],
        [] if reasons else there,
        len(every) - len(there),
        quantiles,
    )


def _apart(records: tuple[Record, ...]) -> list[str]:
    """Why heads cannot be set against each other."""
    found = []
    classes = [str(record.model.get("class", "?")) for record in records]
    shapes = {tuple((x.name, x.state.heads) for x in record.layers) for record in records}
    if len(set(classes)) > 1:
        found.append(different_classes(classes))
    elif len(shapes) > 1:
        found.append("The models have different layers or numbers of heads.")
    if len({record.columns["mean"].kind for record in records}) > 1:
        found.append("Some constants are exact, and others are bounds or of a sample.")
    return found


def _quantiles(record: Record) -> list[float]:
    means = [row["mean"] for row in record.heads if row["rows"]]
    return np.quantile(means, SHARES).tolist() if means else []


def _verdict(records: tuple[Record, ...], heads: list[ComparedHead], reasons: list[str]) -> str:
    means = [mean_of_heads(record) for record in records]
    if any(mean != mean for mean in means):  # NaN: a record without rows
        return "There is nothing to compare: a record has no rows."
    first, last = means[0], means[-1]
    if reasons:
        told = ", ".join(f"{mean:.4f}" for mean in means)
        return f"Mean constants of all heads, in the order given: {told}."
    changes = [head.change for head in heads if head.change is not None]
    up, down = sum(c > 0 for c in changes), sum(c < 0 for c in changes)
    word = "rose" if last > first else "fell" if last < first else "stayed"
    moved = f"{word} from {first:.4f} to {last:.4f}" if last != first else f"stayed at {last:.4f}"
    return (
        f"The mean constant of all heads {moved}. Of {len(changes)} heads, {up} rose, {down} fell "
        f"and {len(changes) - up - down} stayed the same."
    )
