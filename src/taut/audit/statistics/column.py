"""Column: what the numbers under one name are. The record, the report and the terminal use it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from taut._base.number_text import number_text

Kind = Literal["exact", "upper", "lower", "estimate", ""]


class Column(NamedTuple):
    """One column of the table of heads.

    Attributes
    ----------
    name
        Key in a row of ``Record.heads``. Upper bounds end in ``_upper``, so that rows say it
        wherever they go.
    kind
        ``"exact"``: computed for every row that was seen, up to rounding. ``"upper"``: a bound
        that is never exceeded. ``"lower"``: measured. ``"estimate"``: neither bound nor measured,
        and it may err to both sides. Empty for places and names.
    words
        Heading, without the kind.
    meaning
        What it is, as a noun phrase.
    norm, theorem
        Norm of a constant, and the theorem that gives it.
    form
        How its numbers are written.
    """

    name: str
    kind: Kind
    words: str
    meaning: str
    norm: str = ""
    theorem: str = ""
    form: str = ".4f"

    @property
    def heading(self) -> str:
        """The words with the kind, for tables."""
        return f"{self.words} ({self.kind})" if self.kind and self.form != "d" else self.words

    def text(self, value: float, form: str = "") -> str:
        """A number of this column, rounded up if it is an upper bound."""
        return number_text(value, form or self.form, self.kind)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind, "norm": self.norm, "theorem": self.theorem, "meaning": self.meaning,
        }  # fmt: skip
