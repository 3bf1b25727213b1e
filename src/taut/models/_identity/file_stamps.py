"""Whether a model by name is still the same, without loading it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taut.models._identity.identity import taut_digest
from taut.models._identity.source_files import source_files, versions
from taut.models._identity.tensor_digests import combined_digest


def file_stamp(place: str, revision: str | None = None) -> str | None:
    """A digest of the names, sizes and dates of a model's files.

    ``place`` is a folder, a .gguf file, or an id on the Hub whose files are on this machine. None
    means that nobody can tell without loading the model, as for ``module:function``.
    """
    path = _local(place, revision)
    if path is None:
        return None
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    parts = []
    for file in files:
        if file.is_file():
            stat = file.stat()
            inside = str(file.relative_to(path.parent))
            # The last of these times cannot be set by hand.
            seen = (inside, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            parts.append(repr(seen).encode())
    return combined_digest(os.fsencode(path.resolve()), *parts).hex()


def same_environment(identity: dict[str, Any], code: Sequence[str] = ()) -> bool:
    """Whether the packages and the code that an identity names are those of this machine."""
    known, files = identity.get("versions"), identity.get("code")
    if not isinstance(known, dict) or not isinstance(files, dict):
        return False
    return (
        versions(known) == known
        and source_files(files, lambda _: False).files == files
        and identity.get("taut") == taut_digest(tuple(code))
    )


def _local(place: str, revision: str | None) -> Path | None:
    """The folder or file of a model on this machine."""
    path = Path(place)
    if path.is_dir() or path.is_file():
        return path
    if ":" in place:
        return None
    try:
        from transformers.utils.hub import cached_file

        found = cached_file(place, "config.json", revision=revision)
    except (ImportError, OSError, ValueError):
        return None
    return None if found is None else Path(found).parent
