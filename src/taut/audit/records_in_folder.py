"""The records in a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from taut._base.json_files import LARGEST, SEAL
from taut.audit.record_checks import count, facts, read_record
from taut.audit.record_json import VERSION

_NAMED = re.compile(r"-[0-9a-f]{16}(-\d+)?(\.shard-\d+-of-\d+)?(\.part-\d+)?\.json$")


class FolderEntry(NamedTuple):
    """One record, in a few words; ``error`` says why a record cannot be read.

    That of a shard says which one it is in ``shard``, and is complete if all of its part was seen.
    """

    file: Path
    name: str = ""
    samples: int = 0
    complete: bool = False
    error: str = ""
    shard: str = ""


def records_in(folder: str | Path) -> list[FolderEntry]:
    """List the records in a folder, sorted by file name; other files are passed over."""
    place = Path(folder)
    if not place.is_dir():
        raise ValueError(f"there is no folder {place}")
    found = []
    for file in sorted(place.glob("*.json")):
        try:
            data = read_record(file, VERSION)
            name, samples = facts(data, "model").get("name", "model"), count(data, "samples")
        except ValueError as error:
            if _looks_like_a_record(file):
                found.append(FolderEntry(file, error=str(error)))
            continue
        shard = data["shard"] if isinstance(data.get("shard"), dict) else {}
        which = f"shard {shard.get('number')} of {shard.get('total')}" if shard else ""
        complete = (shard or data).get("complete") is True
        found.append(FolderEntry(file, name, samples, complete, shard=which))
    return found


def record_files(folder: Path) -> list[Path]:
    """The files in a folder that are records, or were before something damaged them."""
    return [file for file in sorted(folder.glob("*.json")) if _looks_like_a_record(file)]


def _looks_like_a_record(file: Path) -> bool:
    """Whether a file that cannot be read once was a record."""
    if not file.is_file():  # a pipe would keep us waiting
        return False
    if _NAMED.search(file.name):
        return True
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST)
    except OSError:
        return False
    # The version comes late in the file: of one that was cut, the beginning must do.
    cut = content.startswith(f'{{"{SEAL}":'.encode()) and not content.rstrip().endswith(b"}")
    return cut or b'"taut_audit"' in content
