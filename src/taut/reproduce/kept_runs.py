"""Records of trainings, kept in files so that an experiment that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taut._base.files import write_whole

Record = dict[str, Any]


def kept_run(
    folder: Path, name: str, made_from: tuple[Any, ...], train: Callable[[], Any]
) -> Record:
    """The record of a training: from its file if it was made from the same things, else anew.

    ``made_from`` is all that decides the record besides its name: tensors, which count by their
    numbers, and settings, which count as they are printed.
    """
    file, mark = folder / f"{name}.json", _mark(made_from)
    try:
        record: Record = json.loads(file.read_text())
        if record["made_from"] == mark:
            return record
    except (OSError, ValueError, KeyError, TypeError):  # not there, or no such record
        pass
    text = json.dumps({**train(), "made_from": mark})
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(text, file)
    return dict(json.loads(text))


def _mark(made_from: tuple[Any, ...]) -> str:
    found = hashlib.blake2b(digest_size=10)
    for each in made_from:
        found.update(each.numpy().tobytes() if hasattr(each, "numpy") else repr(each).encode())
        found.update(b"\0")
    return found.hexdigest()
