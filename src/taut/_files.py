"""Files that are written whole or not at all: a reader never meets half of one."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(text: str, file: Path) -> None:
    """Write a file through another one beside it."""
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(f"cannot write {file}: {error.strerror}") from error
