"""Column: what the numbers under one name are. The record, the report and the terminal use it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from taut._base.number_text import number_text

WORDS = "s"  # the form of columns that hold words
Kind = Literal["exact", "upper", "lower", "sample", "estimate", ""]


class Column(NamedTuple):
    """One column of the table of heads.

    Attributes
    ----------
    name
        Key in a row of ``Record.heads``. Upper bounds end in ``_upper``, so that rows say it
        wherever they go.
    kind
        ``"exact"``: computed for every row that was seen, up to rounding. ``"upper"``: a bound
        that is never exceeded. ``"lower"``: measured. ``"sample"``: of rows that were drawn, so
        it describes all rows only approximately. ``"estimate"``: neither bound nor measured, and
        it may err to both sides. Empty for places and names.
    words
        Heading, without the kind.
    meaning
        What it is, as a noun phrase.
    norm, theorem
        Norm of a constant, and the theorem that gives it.
    form
        How its numbers are written; ``"s"`` for words.
    drawn
        What it is where not all rows were measured but a sample of them.
    quick
        What it is in a first look, which bounds constants from above; None for the same.
    """

    name: str
    kind: Kind
    words: str
    meaning: str
    norm: str = ""
    theorem: str = ""
    form: str = ".4f"
    drawn: Kind = "sample"
    quick: Kind | None = None

    @property
    def heading(self) -> str:
        """The words with the kind, for tables."""
        return f"{self.words} ({self.kind})" if self.kind and self.form != "d" else self.words

    def labelled(self, *, drawn: bool, quick: bool) -> Column:
        """The column where rows were drawn, or constants were only bounded in a first look."""
        if not self.kind or self.form == "d":
            return self
        bounded = quick and self.quick is not None
        kind = self.quick if bounded and self.quick is not None else self.kind
        if drawn:  # the largest bound of a sample bounds nothing
            kind = "sample" if bounded else self.drawn
        return self._replace(kind=kind)

    def text(self, value: Any, form: str = "") -> str:
        """A number of this column, rounded up if it is an upper bound; words as they are typed."""
        if self.form == WORDS:
            return repr(value) if value else "–"
        return number_text(value, form or self.form, self.kind)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind, "norm": self.norm, "theorem": self.theorem, "meaning": self.meaning,
        }  # fmt: skip
