"""Whether two records belong to the same run: the same model, data and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from taut.audit.record import Record
from taut.models import combined_digest


def identifying(record: Record) -> dict[str, Any]:
    """Everything that tells one run from another, as JSON can hold it; data may be moved."""
    elsewhere = ("source", "notes", "preprocessing")  # the last is in the identity of the reader
    data = {key: value for key, value in record.data.items() if key not in elsewhere}
    name = record.model.get("name")
    return {"name": name, **record.identity, "data": data, "settings": record.settings}


def short_digest(record: Record) -> str:
    """Eight bytes of all of that, for the name of a file."""
    return combined_digest(json.dumps(identifying(record), sort_keys=True).encode()).hex()[:16]


def runs_differ(one: Record, other: Record) -> list[str]:
    """What two runs differ in, by name: ``configuration.scale_attn_weights: true, false``."""
    return list(_different(identifying(one), identifying(other), ""))


def _different(one: Any, other: Any, name: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _different(one.get(key), other.get(key), f"{name}.{key}" if name else key)
        return
    a, b = (json.dumps(value) for value in (one, other))
    if a != b:
        yield f"{name}: {a}, {b}" if max(len(a), len(b)) < 34 else name  # no digests
