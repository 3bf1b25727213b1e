"""Samples from a table: a data set of the Hub, or a file of rows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from taut._optional import needing

TABLES = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


def read_table(name: str, limit: int, column: str | None) -> tuple[str, list[Any]]:
    """Kind and samples of a column: the first of text or of images where none is named.

    Rows are streamed: of a large data set only what is needed is read.
    """
    with needing("tables need the package datasets", "data"):
        import datasets
    try:
        rows = _open(datasets, name)
        first = list(islice(rows, limit))
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot read {name}: {why}") from None
    if not first:
        raise ValueError(f"{name} has no rows")
    chosen = column or _column(first[0])
    if chosen not in first[0]:
        raise ValueError(f"{name} has no column {chosen!r}: it has {', '.join(first[0])}")
    items = [row[chosen] for row in first]
    if all(hasattr(item, "convert") for item in items):
        return "images", items
    texts = [item for item in items if isinstance(item, str) and item.strip()]
    if not texts:
        raise ValueError(f"the column {chosen!r} of {name} holds neither text nor images")
    return "text", texts


def _open(datasets: Any, name: str) -> Any:
    if not name.startswith("hf:"):
        if not Path(name).is_file():
            raise ValueError(f"there is no file {name}")
        kind = TABLES[Path(name).suffix.lower()]
        return datasets.load_dataset(kind, data_files=name, split="train", streaming=True)
    place, *more = name.removeprefix("hf:").split(":")
    if not place or len(more) > 2:
        raise ValueError("write a data set as hf:name, hf:name:configuration or with :split")
    configuration, split = [*more, "", ""][:2]
    return datasets.load_dataset(
        place, configuration or None, split=split or "test", streaming=True
    )


def _column(row: dict[str, Any]) -> str:
    """The column of the samples: images, else the one called text, else the first of text."""
    images = [key for key, value in row.items() if hasattr(value, "convert")]
    texts = [key for key, value in row.items() if isinstance(value, str)]
    if not images and not texts:
        raise ValueError(f"no column holds text or images: {', '.join(row)}")
    return images[0] if images else "text" if "text" in texts else texts[0]
