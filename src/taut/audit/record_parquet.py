"""The heads of a record as Parquet: one row each, with what every column is in its metadata."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from taut._base.json_files import plain
from taut._base.optional import needing
from taut.audit.record_json import VERSION
from taut.audit.statistics.column import WORDS

if TYPE_CHECKING:
    from taut.audit.record import Record
    from taut.audit.statistics.column import Column

FACTS = ("model", "data", "settings", "versions", "identity")


def parquet_bytes(record: Record) -> bytes:
    """The file that :meth:`Record.to_parquet` writes.

    Every field has ``kind``, ``norm``, ``theorem`` and ``meaning`` as metadata. That of the schema
    holds the version of the record as ``taut_audit``, and as JSON: model, data, settings, versions,
    identity, samples, seen, complete and shard.
    """
    with needing("to_parquet needs pyarrow", "data"):
        import pyarrow
        import pyarrow.parquet

    columns = record.columns
    fields = [
        pyarrow.field(name, _type(pyarrow, column), metadata=column.to_dict())
        for name, column in columns.items()
    ]
    schema = pyarrow.schema(fields, metadata=_metadata(record))
    rows = record.heads
    values = {name: [_written(row[name]) for row in rows] for name in columns}
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(values, schema=schema), stream)
    return stream.getvalue()


def _type(pyarrow: Any, column: Column) -> Any:
    if column.form == WORDS:
        return pyarrow.string()
    return pyarrow.int64() if column.form == "d" else pyarrow.float64()


def _written(value: Any) -> Any:
    """A value; what is not Unicode in names is escaped, as in the JSON file."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _metadata(record: Record) -> dict[str, str]:
    facts = {name: plain(getattr(record, name)) for name in (*FACTS, "samples", "complete")}
    facts["seen"] = [list(span) for span in record.seen]
    facts["shard"] = None if record.shard is None else record.shard._asdict()
    written = {name: json.dumps(value) for name, value in facts.items()}
    return {"taut_audit": str(VERSION), **written}
