"""Folders and patterns, as the files that they stand for."""

from __future__ import annotations

import glob
from pathlib import Path

from taut.models._data_files.images import IMAGES
from taut.models._data_files.tensors import TENSORS
from taut.models._data_files.texts import is_there


def expanded(item: str) -> list[str]:
    """The files of a folder of images or of a pattern (images/*.png); else the item itself."""
    if is_there(item, Path.is_dir):
        inside = sorted(str(p) for p in Path(item).rglob("*") if p.suffix.lower() in IMAGES)
        if not inside:
            raise ValueError(f"there are no images in {item} ({', '.join(IMAGES)})")
        return inside
    if "*" in item and Path(item).suffix.lower() in (*IMAGES, *TENSORS):
        found = sorted(glob.glob(item))
        if not found:
            raise ValueError(f"there are no files {item}")
        return found
    return [item]
