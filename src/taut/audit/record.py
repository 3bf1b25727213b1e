"""Record: what an audit found, with everything that is needed to read or repeat it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taut._base.files import write_whole
from taut._base.json_files import sealed
from taut._base.optional import needing
from taut.audit.consequence.columns import RANKED_BY, is_measured
from taut.audit.head_table import has_theta, head_columns, head_rows
from taut.audit.layer_record import LayerRecord
from taut.audit.made import made_together
from taut.audit.package_versions import package_versions
from taut.audit.record_checks import read_record
from taut.audit.record_json import VERSION, check_labels, record_fields, record_to_dict
from taut.audit.record_parquet import parquet_bytes
from taut.audit.record_text import record_text
from taut.audit.sample_spans import Span, joined, said, shared
from taut.audit.sample_spans import count as counted
from taut.audit.shard import Shard
from taut.audit.statistics.column import Column
from taut.audit.statistics.head_state import HeadState
from taut.audit.worst_samples import shown_pictures


@dataclass
class Record:
    """The result of an audit: :func:`taut.audit.run`.

    Attributes
    ----------
    model, data, settings, versions
        What was audited, on which data, and how.
    layers
        The layers, in the order in which the model runs them.
    seen
        The samples that were seen: sorted ranges, each (first, one after the last); ``samples`` is
        their number.
    complete
        Whether all of the data was seen.
    shard
        Which part of the data this is, if it was audited as one of several; None for all of it.
    missed
        Attention that could not be seen: module and operation.
    tokens
        Tokens of the rows with the largest constants, by layer and head, where they are known.
    pictures
        Small pictures (PNG in base64) of the images that hold those rows, by sample.
    logits
        The final logits times the inverse temperature λ, if they were asked for: one head, whose
        rows are predictions.
    identity
        Everything that the numbers depend on besides data and settings: weights, configuration,
        code, tokenizer and versions, as digests where it is long. An audit is continued, and its
        record used again, only if all of it is the same.
    made, file
        ``date`` (UTC) of its last batch and ``command``, if one was given; where it is kept.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    settings: dict[str, Any]
    layers: list[LayerRecord] = field(default_factory=list)
    seen: list[Span] = field(default_factory=list)
    complete: bool = False
    shard: Shard | None = None
    missed: list[tuple[str, str]] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)
    logits: LayerRecord | None = None
    versions: dict[str, str] = field(default_factory=package_versions)
    identity: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict, compare=False)
    file: Path | None = field(default=None, compare=False, repr=False)

    @property
    def samples(self) -> int:
        """How many samples were seen."""
        return counted(self.seen)

    @property
    def heads(self) -> list[dict[str, Any]]:
        """One row for each head, in the order of the model; :attr:`columns` says what they hold."""
        there = self.has_consequence
        return [
            row for layer in self.layers for row in head_rows(layer, self.tokens, consequence=there)
        ]

    @property
    def columns(self) -> dict[str, Column]:
        """What the numbers of :attr:`heads` are: exact, a bound or of a sample; in which norm."""
        found = head_columns(
            self.norms, drawn=self.drawn, quick=self.quick, consequence=self.has_consequence,
            theta=has_theta(self.measured),
        )  # fmt: skip
        return {column.name: column for column in found}

    @property
    def has_consequence(self) -> bool:
        """Whether the consequence of noise on heads was estimated, at least of one of them."""
        return any(layer.consequence is not None for layer in self.layers)

    @property
    def norms(self) -> tuple[float, ...]:
        """Exponents besides 1, 2 and ∞ that have upper bounds."""
        return self.measured[0].state.norms if self.measured else ()

    @property
    def measured(self) -> list[LayerRecord]:
        """Everything whose rows were measured: the layers, and the final logits."""
        return [*self.layers, *([] if self.logits is None else [self.logits])]

    @property
    def drawn(self) -> bool:
        """Whether some rows were left out, so that counts and means are those of a sample."""
        return any(layer.state.counts["skipped"].any() for layer in self.measured)

    @property
    def quick(self) -> bool:
        """Whether constants were bounded from the largest weight of each row alone."""
        return bool(self.settings.get("quick"))

    @property
    def predictions(self) -> dict[str, Any] | None:
        """The row of the final logits, like those of the heads."""
        return None if self.logits is None else head_rows(self.logits, self.tokens)[0]

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The heads in the order of :attr:`ranking`: by consequence, then by mean l2 constant."""

        def place(row: dict[str, Any]) -> tuple[bool, float]:
            if is_measured(row):
                return False, -row[RANKED_BY]
            return True, -row["mean"] if row["rows"] else 1.0

        return sorted(self.heads, key=place)

    @property
    def ranking(self) -> str:
        """What :attr:`ranked` goes by, in words."""
        if self.has_consequence:
            return "by consequence, the predicted KL for noise on their scores (estimate)"
        return "by their mean constant in l2"

    def layer(self, path: str, call: int, fresh: HeadState) -> LayerRecord:
        """The layer of this name; a new one gets the fresh state."""
        for layer in self.layers:
            if (layer.path, layer.call) == (path, call):
                if layer.state.heads != fresh.heads:
                    raise ValueError(
                        f"{path} has {fresh.heads} heads now and had {layer.state.heads}"
                    )
                return layer
        self.layers.append(LayerRecord(path, call, fresh))
        return self.layers[-1]

    def merge(self, other: Record) -> None:
        """Merge what another process saw of the same model: all of it, or nothing at all.

        Both must hold different samples, by their numbers.
        """
        self._fits(other)
        known = {layer.name: layer for layer in self.layers}
        for theirs in other.layers:
            mine = self.layer(theirs.path, theirs.call, theirs.empty().state)
            mine.since = min(mine.since, theirs.since) if mine.name in known else theirs.since
            mine.fused = theirs.fused and (mine.fused or mine.name not in known)
            self._join(mine, theirs, other.tokens)
        self.layers.sort(key=lambda layer: layer.since)
        if other.logits is not None:
            self.logits = self.logits or other.logits.empty()
            self._join(self.logits, other.logits, other.tokens)
        self.seen = joined([*self.seen, *other.seen])
        self.pictures = shown_pictures(self, other.pictures)
        self.missed = sorted({*self.missed, *other.missed})
        self.complete &= other.complete
        self.made = made_together(self.made, other.made)
        if other.shard is not None and not other.shard.is_part_of(self.shard):
            self.shard = None

    def finished(self, done: bool = True) -> None:
        """Note whether all samples were seen: of the shard, if it is one, or of all data."""
        if self.shard is None:
            self.complete = done
        else:
            self.shard = self.shard._replace(complete=done)

    def _fits(self, other: Record) -> None:
        """Raise an error if another record cannot be merged."""
        if self.seen and other.seen and self.quick != other.quick:
            raise ValueError("cannot merge exact constants with the bounds of a first look")
        known = {layer.name: layer for layer in (*self.layers, self.logits) if layer is not None}
        for theirs in (*other.layers, other.logits):
            mine = None if theirs is None else known.get(theirs.name)
            if mine is not None and theirs is not None:
                mine.fits(theirs)
        if twice := shared(self.seen, other.seen):
            raise ValueError(
                f"cannot merge records that hold the same samples ({said(twice)}): number them "
                "with first= where several processes audit"
            )

    def _join(self, mine: LayerRecord, theirs: LayerRecord, tokens: dict[str, str]) -> None:
        mine.merge(theirs)
        won = (mine.state.places["two"] == theirs.state.places["two"]).all(axis=1)
        for key in [f"{mine.name}/{h}" for h in won.nonzero()[0]]:  # the token goes with its place
            self.tokens.pop(key, None)
            self.tokens |= {key: tokens[key]} if key in tokens else {}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return record_to_dict(self)

    def to_json(self) -> str:
        """What :meth:`save` writes: :meth:`to_dict` with a checksum."""
        return sealed(self.to_dict())

    def save(self, file: Path | str) -> None:
        """Write it as JSON with a checksum, whole or not at all."""
        write_whole(self.to_json(), Path(file))

    @classmethod
    def load(cls, file: Path | str) -> Record:
        """The record in a file; a ValueError with the name of the file says why there is none."""
        data = read_record(Path(file), VERSION)
        try:
            found = cls(**record_fields(data), file=Path(file))
            check_labels(found, data)
        except ValueError as error:
            raise ValueError(f"{file} is not a whole record of an audit: {error}") from None
        return found

    def to_pandas(self) -> Any:
        """The heads as a pandas.DataFrame; ``attrs["columns"]`` says what its columns are."""
        with needing("to_pandas needs pandas", packages="pandas"):
            import pandas

        frame = pandas.DataFrame(self.heads, columns=list(self.columns))
        frame.attrs["columns"] = {name: each.to_dict() for name, each in self.columns.items()}
        return frame

    def to_parquet(self, file: str | Path) -> None:
        """Write the heads as Parquet, one row each; metadata says what the columns are."""
        write_whole(parquet_bytes(self), Path(file))

    def _repr_html_(self) -> str:
        """The record in a notebook: its heat map and its most sensitive heads."""
        from taut.audit.report.page import fragment

        return fragment(self)

    def __str__(self) -> str:
        return record_text(self)
