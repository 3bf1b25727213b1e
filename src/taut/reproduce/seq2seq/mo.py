"""The entries of compiled gettext catalogs (.mo).

No library at hand reads them as needed. ``gettext`` of the standard library drops the plurals of
the source language, which are half of the pairs of an entry with plurals, and wants headers in
UTF-8. Of 5,764 different catalogs on one machine Babel 2.18 refuses 76: those in other charsets,
and those with the separator of contexts in a text. polib 1.2 reads them all alike, but takes a file
that is cut short for a whole one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAGIC = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}


class Entry(NamedTuple):
    """A message with its plural, if it has one, and the forms of its translation."""

    source: list[str]
    target: list[str]


def entries(data: bytes) -> Iterator[Entry]:
    """Messages and translations of a catalog, without its header and without contexts."""
    order = _MAGIC.get(data[:4])
    if order is None:
        raise ValueError("not a compiled gettext catalog")
    try:
        _, count, sources, targets = struct.unpack_from(f"{order}4I", data, 4)
        raw = [
            (_text(data, order, sources + 8 * i), _text(data, order, targets + 8 * i))
            for i in range(count)
        ]
        charset = _charset(dict(raw).get(b"", b""))
        texts = [(source.decode(charset), target.decode(charset)) for source, target in raw]
    except (struct.error, UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"a damaged gettext catalog ({error})") from None
    for source, target in texts:
        if source:
            yield Entry(source.split("\x04")[-1].split("\x00"), target.split("\x00"))


def _text(data: bytes, order: str, at: int) -> bytes:
    length, start = struct.unpack_from(f"{order}2I", data, at)
    if start + length > len(data):
        raise struct.error("it is cut short")
    return data[start : start + length]


def _charset(header: bytes) -> str:
    found = re.search(rb"charset=([\w.:-]+)", header)
    return found[1].decode() if found else "utf-8"
