"""Arrays that took long to make, kept in files so that a run that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


# What decides such arrays besides the key; another version is another experiment.
DECIDING = (
    "taut", "numpy", "torch", "transformers", "pillow", "gymnasium", "box2d", "stable-baselines3",
)  # fmt: skip


def kept(folder: Path, key: dict[str, Any], make: Callable[[], Arrays]) -> Arrays:
    """What ``make`` gives, or what it gave before for the same key with the same packages."""
    whole = json.dumps([key, _versions()], sort_keys=True)
    mark = hashlib.blake2b(whole.encode(), digest_size=10).hexdigest()
    file = folder / f"{mark}.npz"
    try:
        with file.open("rb") as stream, np.load(stream) as found:
            return dict(found)
    except (OSError, ValueError, zipfile.BadZipFile):  # not there, or cut short by a full disk
        pass
    arrays = make()
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    try:
        with part.open("wb") as written:
            np.savez_compressed(written, **arrays)  # type: ignore[arg-type]
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(f"cannot write {file}: {error.strerror}") from error
    return arrays


def _versions() -> dict[str, str | None]:
    """The versions of what is installed of these packages."""
    found: dict[str, str | None] = dict.fromkeys(DECIDING)
    for name in DECIDING:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
