"""Samples of text, images, sound or tensors, read from files, tables or the Hub."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import torch

from taut.models._data_files.expand import expanded
from taut.models._data_files.hub_tables import read_table
from taut.models._data_files.images import IMAGES
from taut.models._data_files.tensors import TENSORS, read_tensor
from taut.models._data_files.texts import ROWS, ending, is_there, read_texts

SOUNDS = (".wav",)
NOT_READ = (".svg", ".gif", ".tif", ".tiff", ".heic", ".avif", ".pdf")  # not text either


class Samples(NamedTuple):
    """Data: texts, images (files or Pillow images), sound files, or tensors."""

    kind: str  # text, images, sound or tensors
    items: list[Any]
    source: str
    column: str | None = None  # the column of a table they come from
    notes: tuple[str, ...] = ()  # remarks on how the data were read

    @property
    def description(self) -> dict[str, Any]:
        """What the record says about the data."""
        digest = hashlib.blake2b(digest_size=16)
        files = self.kind in ("images", "sound")
        for item in self.items:
            named = files and isinstance(item, str)
            content = _content(item) if named else _bytes(item)
            form = "" if isinstance(item, str) else _form(item)
            digest.update(f"{form} {len(content)} ".encode())  # marks where each one ends
            digest.update(content)
        found: dict[str, Any] = {
            "kind": self.kind, "samples": len(self.items), "source": self.source,
            "digest": digest.hexdigest(), "notes": list(self.notes),
        }  # fmt: skip
        return found if self.column is None else {**found, "column": self.column}


def read_samples(
    given: list[str], limit: int, column: str | None = None, *, option: str = "--data"
) -> Samples:
    """Read lines of text files, literal texts, images, sound, tensors, folders, or a table.

    A table is a data set on the Hub, ``hf:name:configuration:split``, or a file (.jsonl, .json,
    .csv, .tsv, .parquet); ``column`` names the column of its samples. Text files may be compressed
    (.gz, .bz2, .xz). ``option`` is what messages call the argument.
    """
    if not given:
        raise ValueError(
            f"give {option}: a text file, text, images, .wav files, a folder of images, tensors "
            "(.npy, .pt, .safetensors), a table (.jsonl, .csv, .parquet) or a data set on the Hub "
            "(hf:name:configuration:split)"
        )
    if not all(item.strip() for item in given):
        raise ValueError(f"{option} is empty")
    source = ", ".join(item if len(item) < 200 else f"{item[:200]}…" for item in given[:5])
    hub = [item for item in given if item.startswith("hf:") or ending(item[:500]) == ".parquet"]
    if len(given) > 1 and (hub or any(ending(item[:500]) in ROWS for item in given)):
        raise ValueError("give one table at a time")
    if hub:
        kind, items, chosen = read_table(given[0], limit, column)
        return Samples(kind, items, source, chosen)
    given = [name for item in given for name in expanded(item)]
    endings = {Path(item).suffix.lower() for item in given if len(item) < 1000}
    if column is not None and endings <= {*IMAGES, *TENSORS, *SOUNDS}:
        raise ValueError("--column is for tables: .jsonl, .csv, .parquet or hf:name")
    if endings and endings <= set(IMAGES):
        return Samples("images", given[:limit], source)
    if endings and endings <= set(TENSORS):
        rows = [row for item in given for row in read_tensor(Path(item))[:limit]]
        if not rows:
            raise ValueError(f"there are no samples in {source}")
        return Samples("tensors", rows[:limit], source)
    if endings and endings <= set(SOUNDS):
        return Samples("sound", given[:limit], source)
    for item in given:
        if Path(item[:500]).suffix.lower() in NOT_READ and is_there(item, Path.is_file):
            raise ValueError(
                f"{item} is neither text nor an image that can be read: give a text or .png file"
            )
    found = read_texts(given, limit, column)
    return Samples("text", found.items, source, found.column, found.notes)


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None


def _form(item: Any) -> str:
    """What the bytes alone do not say: type and shape of a tensor, mode and size of an image."""
    if isinstance(item, torch.Tensor):
        return f"{item.dtype} {tuple(item.shape)}"
    return f"{item.mode} {item.size}"


def _bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, torch.Tensor):
        return bytes(item.contiguous().view(torch.uint8).numpy())
    return bytes(item.tobytes())  # of an image
