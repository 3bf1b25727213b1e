"""Arrays that took long to make, kept in files so that a run that was stopped goes on."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from taut._base.files import write_whole

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
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):  # not there, or damaged
        pass
    arrays = make()
    folder.mkdir(parents=True, exist_ok=True)
    written = io.BytesIO()
    np.savez_compressed(written, **arrays)  # type: ignore[arg-type]
    write_whole(written.getvalue(), file)
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
