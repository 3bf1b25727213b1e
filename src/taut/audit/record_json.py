"""A record as JSON holds it, and back again with everything checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from taut._base.json_files import plain
from taut.audit.head_table import has_theta, kept_kinds
from taut.audit.layer_record import LayerRecord
from taut.audit.record_checks import count, facts, part, spans, words
from taut.audit.shard import Shard
from taut.audit.thumbnails import checked_pictures

if TYPE_CHECKING:
    from taut.audit.record import Record

VERSION = 8


def record_to_dict(record: Record) -> dict[str, Any]:
    """Plain numbers and words."""
    return {
        "taut_audit": VERSION,
        "model": plain(record.model),
        "data": plain(record.data),
        "settings": plain(record.settings),
        "versions": plain(record.versions),
        "identity": plain(record.identity),
        "made": plain(record.made),
        "samples": record.samples,
        "seen": [list(span) for span in record.seen],
        "complete": record.complete,
        "shard": None if record.shard is None else record.shard._asdict(),
        "missed": [list(item) for item in record.missed],
        "tokens": record.tokens,
        "pictures": record.pictures,
        **_labels(record),
        "layers": [layer.to_dict() for layer in record.layers],
        "logits": None if record.logits is None else record.logits.to_dict(),
    }


def _labels(record: Record) -> dict[str, Any]:
    """What all numbers are: those of the table of heads, and those that layers keep."""
    columns = {name: each.to_dict() for name, each in record.columns.items()}
    return {
        "columns": columns,
        "kinds": kept_kinds(
            record.norms, drawn=record.drawn, quick=record.quick, theta=has_theta(record.measured)
        ),
    }


def record_fields(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of the record in a file; a ValueError says what is wrong with the data."""
    layers = [LayerRecord.from_dict(each) for each in part(data, "layers", list)]
    _check_alike(layers)
    logits = None if data.get("logits") is None else LayerRecord.from_dict(data["logits"])
    missed = [words(pair, 2) for pair in part(data, "missed", list)]
    known = ("model", "data", "settings", "versions", "identity")
    return {
        **{name: facts(data, name) for name in known},
        "made": facts(data, "made") if "made" in data else {},
        "layers": layers,
        "seen": spans(data),
        "complete": part(data, "complete", bool),
        "shard": None if data.get("shard") is None else _shard(data["shard"]),
        "missed": [(module, operation) for module, operation in missed],
        "tokens": words(part(data, "tokens", dict)),
        "pictures": checked_pictures(part(data, "pictures", dict)),
        "logits": logits,
    }


def _shard(data: Any) -> Shard:
    total = count(data, "total", "the shard", least=2)
    number = count(data, "number", "the shard", least=1)
    if number > total:
        raise ValueError(f"there is no shard {number} of {total}")
    return Shard(number, total, part(data, "complete", bool, "the shard"))


def check_labels(record: Record, data: dict[str, Any]) -> None:
    """Raise an error where a file calls its numbers something that they are not."""
    if any(data.get(name) != labels for name, labels in _labels(record).items()):
        raise ValueError("the labels of its numbers do not match this version")


def _check_alike(layers: list[LayerRecord]) -> None:
    """Raise an error where layers cannot be those of one audit: they share settings, not names."""
    if len({layer.name for layer in layers}) < len(layers):
        raise ValueError("two layers have the same name")
    kept = {(each.state.norms, each.state.threshold, each.state.theta) for each in layers}
    if len(kept) > 1:
        raise ValueError("its layers have different norms or thresholds, or some have θ")
    grids = [layer.grid for layer in layers if layer.grid is not None]
    if len({(grid.epsilons, grid.norms) for grid in grids}) > 1:
        raise ValueError("its grids have different step sizes or norms")
