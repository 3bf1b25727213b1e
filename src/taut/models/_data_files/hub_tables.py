"""Samples from a data set on the Hub, or from a .parquet file."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from taut._base.optional import needing
from taut.models._data_files.text_tables import best_column


def read_table(name: str, limit: int, column: str | None) -> tuple[str, list[Any], str]:
    """Kind, samples and name of a column; the first column of images or else of text by default.

    Rows are streamed, so that only the part of a large dataset that is needed is read.
    """
    with needing("tables need the package datasets", "data"):
        import datasets
    try:
        rows = _open(datasets, name)
        first = list(islice(rows, limit))
    except Exception as error:  # damaged files and missing datasets raise errors of all kinds
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot read {name}: {why}") from None
    if not first:
        raise ValueError(f"{name} has no rows")
    images = [key for key, value in first[0].items() if hasattr(value, "convert")]
    try:
        chosen = column or (images[0] if images else best_column(first))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if chosen not in first[0]:
        raise ValueError(f"{name} has no column {chosen!r}: it has {', '.join(first[0])}")
    items = [row[chosen] for row in first]
    if all(hasattr(item, "convert") for item in items):
        return "images", items, chosen
    texts = [item for item in items if isinstance(item, str) and item.strip()]
    if not texts:
        raise ValueError(f"the column {chosen!r} of {name} holds neither text nor images")
    return "text", texts, chosen


def _open(datasets: Any, name: str) -> Any:
    if not name.startswith("hf:"):
        if not Path(name).is_file():
            raise ValueError(f"there is no file {name}")
        return datasets.load_dataset("parquet", data_files=name, split="train", streaming=True)
    place, *more = name.removeprefix("hf:").split(":")
    if not place or len(more) > 2:
        raise ValueError("write a dataset as hf:name, hf:name:configuration or with :split")
    configuration, split = [*more, "", ""][:2]
    return datasets.load_dataset(
        place, configuration or None, split=split or "test", streaming=True
    )
