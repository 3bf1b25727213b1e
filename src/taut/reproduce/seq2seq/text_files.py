"""Files of lines in a folder: plain, compressed, or inside zip files."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple


class TextFile(NamedTuple):
    """A file of lines: by itself, or the member of a zip file."""

    path: Path
    member: str = ""

    @property
    def name(self) -> str:
        """The name of the file itself, without folders."""
        return (self.member or self.path.name).rsplit("/", 1)[-1]

    def __str__(self) -> str:
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    def lines(self) -> list[str]:
        r"""All lines, split at \n alone: other line breaks of Unicode occur within sentences."""
        data = self._data()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ValueError(
                f"{self}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); convert the "
                "file, for instance with iconv -f latin1 -t utf-8"
            ) from None
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        return lines[:-1] if not lines[-1] else lines

    def _data(self) -> bytes:
        try:
            if self.member:
                with zipfile.ZipFile(self.path) as archive:
                    data = archive.read(self.member)
            else:
                data = self.path.read_bytes()
            return gzip.decompress(data) if self.name.endswith(".gz") else data
        except EOFError:
            raise ValueError(f"{self} is cut short: download it again") from None
        except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{self} is damaged ({error}): download it again") from None


def text_files(folder: Path) -> list[TextFile]:
    """The files right in a folder and the members of its zip files, in the order of their names."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".zip":
            found += [TextFile(path, member) for member in _members(path)]
        elif path.is_file():
            found.append(TextFile(path))
    return found


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(archive.namelist())
    except zipfile.BadZipFile:
        # The list of members is at the end: without it the file is cut short, or no zip at all.
        raise ValueError(f"{path} is cut short or no zip file: download it again") from None
    return [name for name in names if not name.endswith("/") and "__MACOSX" not in name]
