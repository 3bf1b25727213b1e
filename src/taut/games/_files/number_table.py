"""Tables of numbers in text files: cells, names of rows and columns, and what is wrong where."""

from __future__ import annotations

import csv
import math
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut._base.number_text import how_many

__all__ = ["Found", "Matrix", "Names", "lines", "tables"]


Matrix = NDArray[np.float64]
Names = tuple[str, ...] | None


class Found(NamedTuple):
    """The matrices of a game, one or two, as they stand in its source, and the names there."""

    matrices: list[Matrix]
    row_names: Names = None
    column_names: Names = None


def tables(text: str, *, path: str, suffix: str) -> Found:
    """The one or two tables of a .csv, .tsv or .txt file; a line ``---`` separates two."""
    blocks: list[list[tuple[int, str]]] = [[]]
    gap = 0  # the last blank line after a row
    for number, raw in enumerate(lines(text), start=1):
        line = _without_comment(raw)
        bare = line.strip(" \t,;")  # spreadsheets pad short rows with delimiters
        if not bare and not raw.strip():
            gap = number if blocks[-1] else 0
        if bare and bare != "---" and gap:
            raise ValueError(
                f"{path}, line {gap}: a blank line between rows; a line --- separates two matrices"
            )
        if bare == "---":
            gap = 0
            if len(blocks) == 2:
                raise ValueError(
                    f"{path}, line {number}: a second ---; a file holds one table or two"
                )
            blocks.append([])
        elif bare:
            blocks[-1].append((number, line))
    if not any(blocks):
        raise ValueError(f"{path} is empty: it must hold rows of numbers")
    for block, side in zip(blocks, ("before", "after"), strict=False):
        if not block:
            raise ValueError(f"{path} has no numbers {side} the line ---")
    delimiter = _delimiter(blocks[0][0][1], suffix)
    found = [_table(block, path=path, delimiter=delimiter) for block in blocks]
    rows = _agreed([table[1] for table in found], path=path, what="row")
    columns = _agreed([table[2] for table in found], path=path, what="column")
    return Found([table[0] for table in found], rows, columns)


def _agreed(names: list[Names], *, path: str, what: str) -> Names:
    """The names that one or both tables give, which must be the same."""
    given = [found for found in names if found is not None]
    if len(given) == 2:
        # Two lists of different length belong to matrices of different shape, refused later.
        for i, (first, second) in enumerate(zip(*given, strict=False), start=1):
            if first != second:
                raise ValueError(
                    f"{path}: {what} {i} is named {first!r} in the first table, {second!r} in the "
                    "second; name them alike, or in one table only"
                )
    return given[0] if given else None


def lines(text: str) -> list[str]:
    """Lines as editors number them; str.splitlines would also break at form feeds and U+2028."""
    return re.split(r"\r\n|\r|\n", text)


def _without_comment(line: str) -> str:
    """The line up to a # at its start or after a blank, unless in quotes: C# may be a name."""
    if "#" not in line:
        return line
    return re.sub(r'"[^"]*"|(?:^|\s)#.*', lambda m: m[0] if m[0][0] == '"' else "", line)


def _delimiter(line: str, suffix: str) -> str:
    """Tab for .tsv, else the first of ; tab , in the first line; blanks part a .txt without any.

    The semicolon comes first because files that have it write 1,5 for 1.5, which is then refused
    as a cell instead of being read as two.
    """
    if suffix == ".tsv":
        return "\t"
    unquoted = re.sub(r'"[^"]*"', "", line)
    return next((c for c in ";\t," if c in unquoted), " " if suffix == ".txt" else ",")


def _cells(line: str, delimiter: str, place: str) -> list[str]:
    """The cells of one line, without quotes and outer blanks."""
    if delimiter == " ":
        line = " ".join(line.split())
    try:
        # A line alone, so that an open quote cannot swallow the lines below it.
        (cells,) = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise ValueError(
            f"{place}: cannot be split into cells, check its quotes: {error}"
        ) from None
    return [cell.strip() for cell in cells]


def _table(
    block: list[tuple[int, str]], *, path: str, delimiter: str
) -> tuple[Matrix, Names, Names]:
    """One table, its header and its column of names found by their not being numbers."""
    rows = [(n, _cells(line, delimiter, f"{path}, line {n}")) for n, line in block]
    top, first = rows[0]
    corner = len(first) > 1 and not first[0]
    # pandas writes an empty corner, and 0, 1, 2, ... for what has no names. Other numbers after
    # an empty cell are a row whose first number is missing.
    counted = corner and first[1:] == [str(i) for i in range(len(first) - 1)]
    header = counted or all(_is_name(cell) for cell in first[corner:])
    body = rows[header:]
    if not body:
        raise ValueError(f"{path} has no numbers below the names in line {top}")
    start, cells = body[0]
    width = len(cells)
    named = width > 1 and ((header and corner) or all(_is_name(cells[0]) for _, cells in body))
    column_names = None
    if header:
        # R leaves out the corner, so that the header is one cell short.
        if len(first) != width and (corner or not named or len(first) != width - 1):
            raise ValueError(
                f"{path}: the names in line {top} fill {how_many(len(first), 'cell')}, "
                f"line {start} has {width}"
            )
        column_names = tuple(first[1:] if named and len(first) == width else first)
    values = np.empty((len(body), width - named))
    for i, (number, cells) in enumerate(body):
        if len(cells) != width:
            raise ValueError(
                f"{path}: line {number} has {how_many(len(cells) - named, 'number')}, "
                f"line {start} has {width - named}; every row must have the same"
            )
        if named and not cells[0]:
            raise ValueError(f"{path}, line {number}, column 1: the name of the row is empty")
        for j, cell in enumerate(cells[named:]):
            value = _value(cell)
            if value is None or not math.isfinite(value):
                edge = (i == 0 and not header) or (j == 0 and not named)
                raise ValueError(
                    f"{path}, line {number}, column {j + named + 1}: "
                    f"{_complaint(cell, value, edge=edge)}"
                )
            values[i, j] = value
    row_names = tuple(cells[0] for _, cells in body) if named else None
    return values, row_names, column_names


def _value(cell: str) -> float | None:
    """The number in a cell, also p/q rounded once; None if it holds none."""
    try:
        if "_" in cell:  # Python reads 1_000, and nobody else
            return None
        if "/" in cell:
            top, bottom = cell.split("/")
            return int(top) / int(bottom)
        return float(cell)
    except (ValueError, ZeroDivisionError):
        return None
    except OverflowError:
        return math.inf


def _is_name(cell: str) -> bool:
    """Whether a cell is a name: text with a letter, or without a digit (1,5 and 50% are neither).

    What is merely a slip in a number must not turn a row of numbers into a header.
    """
    if not cell or _value(cell) is not None:
        return False
    return any(c.isalpha() for c in cell) or not any(c.isdigit() for c in cell)


def _complaint(cell: str, value: float | None, *, edge: bool) -> str:
    """What is wrong with a cell that is not a finite number, and what to do."""
    if not cell:
        return "the cell is empty; every cell must hold a number"
    shown = repr(cell if len(cell) <= 40 else cell[:37] + "...")
    if value is not None:
        return f"{shown} is not a finite number"
    hint = ""
    if re.fullmatch(r"[+-]?\d+,\d+", cell):
        hint = "; write decimals with a point"
    elif edge and _is_name(cell):
        hint = "; names must fill the first line or the first column, without numbers among them"
    return f"{shown} is not a number{hint}"
