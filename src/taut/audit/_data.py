"""Samples of text, images or sound, by name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import torch

from taut.audit._tabular import read_table
from taut.torch._inputs import expanded
from taut.torch._pictures import IMAGES
from taut.torch._tensor_files import TENSORS, read_tensor
from taut.torch._text_files import ROWS, ending, read_texts

SOUNDS = (".wav",)


class Samples(NamedTuple):
    """The data: texts, images (files or pictures in memory), files of sound, or tensors."""

    kind: str  # text, images, sound or tensors
    items: list[Any]
    source: str
    column: str | None = None  # of a table
    notes: tuple[str, ...] = ()  # what is to be said about how the data were read

    @property
    def description(self) -> dict[str, Any]:
        """What the record says about the data."""
        digest = hashlib.blake2b(digest_size=16)
        files = self.kind in ("images", "sound")
        for item in self.items:
            named = files and isinstance(item, str)
            content = _content(item) if named else _bytes(item)
            form = "" if isinstance(item, str) else _form(item)
            digest.update(f"{form} {len(content)} ".encode())  # where each begins and ends
            digest.update(content)
        found: dict[str, Any] = {
            "kind": self.kind, "samples": len(self.items), "source": self.source,
            "digest": digest.hexdigest(), "notes": list(self.notes),
        }  # fmt: skip
        return found if self.column is None else {**found, "column": self.column}


def read_samples(given: list[str], limit: int, column: str | None = None) -> Samples:
    """Lines of text files, texts themselves, images, sound, folders of them, tensors, or a table.

    A table is a data set of the Hub, ``hf:name:configuration:split``, or a file (.jsonl, .json,
    .csv, .tsv, .parquet); ``column`` says where its samples are. Files of text may be packed (.gz,
    .bz2, .xz).
    """
    if not given:
        raise ValueError(
            "give --data: a text file, text, images, .wav files, a folder of images, tensors "
            "(.npy, .pt, .safetensors), a table (.jsonl, .csv, .parquet) or a data set of the Hub "
            "(hf:name:configuration:split)"
        )
    if not all(item.strip() for item in given):
        raise ValueError("--data is empty")
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
            raise ValueError(f"there is no sample in {source}")
        return Samples("tensors", rows[:limit], source)
    if endings and endings <= set(SOUNDS):
        return Samples("sound", given[:limit], source)
    found = read_texts(given, limit, column)
    return Samples("text", found.items, source, found.column, found.notes)


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None


def _form(item: Any) -> str:
    """What bytes alone do not tell: type and shape of a tensor, mode and size of a picture."""
    if isinstance(item, torch.Tensor):
        return f"{item.dtype} {tuple(item.shape)}"
    return f"{item.mode} {item.size}"


def _bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, torch.Tensor):
        return bytes(item.contiguous().view(torch.uint8).numpy())
    return bytes(item.tobytes())  # of a picture
