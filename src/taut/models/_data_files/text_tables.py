"""Rows of tables in text files: JSON, CSV, HellaSwag's format, and text that looks like a table."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

# Usual names of the column of texts, the likeliest first; otherwise the longest column is it.
COLUMNS = ("text", "content", "ctx", "context", "prompt", "goal", "question", "sentence",
           "sentence1", "premise", "input", "instruction", "article", "document", "review",
           "query", "message", "body")  # fmt: skip
TRIED = 20  # lines by which a format is recognised
SHARE = 0.1  # of lines that are bare numbers, from which on they look like labels


class TextRows(NamedTuple):
    """Rows of a table, its format, and whether the file's name says so."""

    rows: list[dict[str, Any]]
    kind: str
    guessed: bool


def rows_in(lines: list[str], ending: str, path: Path) -> TextRows | None:
    """The rows that lines of text hold; None if they are plain text."""
    try:
        if ending in (".csv", ".tsv"):
            return TextRows(_separated(lines, "," if ending == ".csv" else "\t"), ending[1:], False)
        if ending == ".json" and (whole := _whole(lines)) is not None:
            return TextRows(whole, "JSON", False)
        if ending in (".json", ".jsonl", ".ndjson"):
            return TextRows(_objects(lines), "JSON lines", False)
    except (ValueError, RecursionError, csv.Error) as error:
        why = str(error) or type(error).__name__
        raise ValueError(f"cannot read {path}: {why}") from None
    if not _begins_as_json(lines):
        return None
    try:
        return TextRows(_objects(lines), "JSON lines", True)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} begins as lines of JSON and goes on otherwise: {error}") from None


def _begins_as_json(lines: list[str]) -> bool:
    try:
        return bool(_objects(lines[:TRIED]))
    except (ValueError, RecursionError):
        return False


def _whole(lines: list[str]) -> list[dict[str, Any]] | None:
    """One JSON list of rows or of texts; None if every line is an object of its own."""
    try:
        found = json.loads("\n".join(lines))
    except ValueError:
        return None
    if not isinstance(found, list) or not found:
        return None if isinstance(found, dict) and len(lines) < 2 else _refuse(found)
    if all(isinstance(item, str) for item in found):
        return [{"text": item} for item in found]
    return found if all(isinstance(item, dict) for item in found) else _refuse(found)


def _refuse(found: Any) -> Any:
    raise ValueError(f"it must hold a list of objects or of texts, not a {type(found).__name__}")


def _objects(lines: list[str]) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number} is not JSON: {error.msg}") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not an object of JSON")
        rows.append(row)
    if not rows:
        raise ValueError("it has no rows")
    return rows


def _separated(lines: list[str], comma: str) -> list[dict[str, Any]]:
    before = csv.field_size_limit(1 << 30)  # a text may be long; lines were limited before
    try:
        reader = csv.reader((f"{line}\n" for line in lines), delimiter=comma)
        header = next(reader, [])
        rows = [dict(zip(header, row, strict=False)) for row in reader if any(row)]
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise ValueError("it has no rows")
    return rows


def best_column(rows: list[dict[str, Any]]) -> str:
    """The column of the samples: one with a usual name, else the one with the longest text."""
    long = {
        key: sum(len(row[key]) for row in rows[:TRIED] if isinstance(row.get(key), str))
        for key in rows[0]
        if any(_is_text(row.get(key)) for row in rows[:TRIED])
    }
    if not long:
        raise ValueError(f"no column holds text or images: {', '.join(rows[0])}")
    usual = [name for name in COLUMNS if name in long]
    return usual[0] if usual else max(long, key=lambda key: long[key])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not _is_number(value) and bool(value.strip())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def hellaswag(lines: list[str]) -> list[str] | None:
    """Contexts in HellaSwag's text: a context, the number of the right ending, four endings."""
    whole = len(lines) // 6 * 6
    labels = [line.strip() for line in lines[1:whole:6]]
    if len(labels) < 2 or not all(label in ("0", "1", "2", "3") for label in labels):
        return None
    return lines[:whole:6]


def looks_odd(lines: list[str]) -> list[str]:
    """Reasons why lines do not look like one sample each."""
    found = []
    tabs = {line.count("\t") for line in lines[: 5 * TRIED]}
    if len(lines) > 1 and len(tabs) == 1 and tabs != {0}:
        found.append(
            f"every line has {tabs.pop() + 1} parts with tabs between, and is read whole, labels "
            "included. If it is a table, name it .tsv and give --column."
        )
    bare = sum(_is_number(line) for line in lines)
    if len(lines) > 5 and bare >= SHARE * len(lines):
        found.append(f"{bare} of {len(lines)} lines are bare numbers, and samples like others.")
    braces = sum(line.lstrip().startswith("{") for line in lines)
    if braces > len(lines) / 2:
        found.append(f"{braces} of {len(lines)} lines look like JSON, but not all are: read whole.")
    if lines and lines[0].lstrip().lower().startswith(("<?xml", "<!doctype", "<html")):
        found.append("it is markup, and every line of it is read as text.")
    return found
