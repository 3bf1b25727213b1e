"""Texts from files: their lines, or one column if the lines are rows of a table."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from taut.models._data_files.text_tables import (
    COLUMNS,
    TextRows,
    best_column,
    hellaswag,
    looks_odd,
    rows_in,
)

_PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
# A name that ends like this means a file, not a text, even if the file does not exist.
FILES = (*ROWS, *_PACKED, ".txt", ".text", ".md", ".parquet")
LONGEST = 8 << 20  # bytes of a line
MOST = 256 << 20  # bytes of a file, after decompression


class Texts(NamedTuple):
    """Samples of text, the column they come from, and remarks on how they were read."""

    items: list[str]
    column: str | None = None
    notes: tuple[str, ...] = ()


def ending(name: str) -> str:
    """The suffix of a file name without that of compression: .jsonl of a.jsonl.gz."""
    path = Path(name)
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() if last in _PACKED else last


def is_there(item: str, kind: Callable[[Path], bool]) -> bool:
    """Whether a file or folder of this name exists; a name that is too long for one does not."""
    try:
        return kind(Path(item))
    except (OSError, ValueError):
        return False


def read_texts(given: list[str], limit: int, column: str | None = None) -> Texts:
    """Read files of text or of rows; whatever is not a file is a text itself."""
    parts = [_texts(item, limit, column) for item in given]
    items = [text for part in parts for text in part.items if text.strip()]
    if not items:
        raise ValueError(f"there is no text in {', '.join(given)}")
    columns = sorted({part.column for part in parts if part.column is not None})
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return Texts(items[:limit], ", ".join(columns) or None, tuple(notes))


def _texts(item: str, limit: int, column: str | None) -> Texts:
    # Files of other kinds were recognised before, unless kinds are mixed.
    if Path(item[:500]).suffix.lower() in (".npy", ".pt", ".safetensors", ".png", ".jpg", ".jpeg",
                                           ".bmp", ".webp", ".wav"):  # fmt: skip
        raise ValueError("give inputs of one kind: tensors, images or text")
    named = len(item) < 500 and not any(c.isspace() for c in item)
    named = named and (Path(item).suffix.lower() in FILES or "/" in item)
    if not named and not is_there(item, Path.is_file):
        if column is not None:
            raise ValueError("--column is for tables: .jsonl, .csv, .parquet or hf:name")
        return Texts([item])
    path = Path(item)
    # A sample in HellaSwag's text format takes six lines.
    lines = list(_lines(path, None if ending(item) == ".json" else 6 * limit + 1))
    found = rows_in(lines, ending(item), path)
    if found is not None:
        return _column(found, column, path, limit)
    if column is not None:
        raise ValueError(f"--column is for tables, and {path} is plain text")
    lines = [line for line in lines if line.strip()]
    contexts = hellaswag(lines[: 6 * limit])
    if contexts is not None:
        note = f"{path.name} has the format of HellaSwag: contexts are read, endings are left out."
        return Texts(contexts, "context", (note,))
    return Texts(lines, None, tuple(f"{path.name}: {odd}" for odd in looks_odd(lines)))


def _column(found: TextRows, column: str | None, path: Path, limit: int) -> Texts:
    try:
        chosen = column or best_column(found.rows)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not any(chosen in row for row in found.rows):
        have = ", ".join(dict.fromkeys(key for row in found.rows for key in row))
        raise ValueError(f"{path} has no column {chosen!r}: it has {have}")
    values = [row[chosen] for row in found.rows if chosen in row]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    if not texts:
        raise ValueError(f"the column {chosen!r} of {path} holds neither text nor images")
    others = [key for key in found.rows[0] if key != chosen]
    notes = []
    if column is None and others and chosen not in COLUMNS[:1]:
        notes.append(
            f"of {path.name} ({found.kind}) the column {chosen!r} is read; others are "
            f"{', '.join(others)} (--column)."
        )
    if found.guessed:
        notes.append(f"{path.name} holds {found.kind}, and is read as such.")
    return Texts(texts[:limit], chosen, tuple(notes))


def _lines(path: Path, most: int | None) -> Iterator[str]:
    """The first lines of a file, compressed or not, without line endings."""
    if not path.is_file():
        missing = f"there is no file {path}"
        raise ValueError(f"{path} is not a regular file" if path.exists() else missing)
    opener: Callable[..., IO[bytes]] = _PACKED.get(path.suffix.lower(), open)
    read = number = 0
    try:
        with opener(path, "rb") as stream:
            while (most is None or number < most) and (line := stream.readline(LONGEST + 1)):
                number, read = number + 1, read + len(line)
                if len(line) > LONGEST and most is not None:
                    raise ValueError(f"line {number} has more than {LONGEST >> 20} MB: is it text?")
                if read > MOST:
                    raise ValueError(f"it has more than {MOST >> 20} MB: give a part of it")
                yield _decoded(line, number).rstrip("\r\n")
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"cannot read {path}: it is damaged ({error})") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def _decoded(line: bytes, number: int) -> str:
    if b"\x00" in line:
        raise ValueError(f"line {number} holds zero bytes: it is not text")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"line {number} is not valid UTF-8 text") from None
