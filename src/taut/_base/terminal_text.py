"""Text of others on the terminal: names, tokens and messages cannot steer it.

Control characters move the cursor, set the window's title or hide what came before; marks of
writing direction swap letters; brackets are markup to rich. None of it reaches the terminal.
"""

from __future__ import annotations

import sys
from typing import IO, Any

JOINER = "\u200d"  # holds the parts of one emoji together


def printable(text: str) -> str:
    r"""Text with everything that cannot be seen written out: a line break as ``\n``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == JOINER else _written_out(c) for c in text)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, longest: int) -> str:
    """Text that can be seen, with dots in the middle where it is too long."""
    half = longest // 2
    return printable(text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}")


def say(text: object, *, file: IO[str] | None = None) -> None:
    """Print one line, in which nothing steers the terminal or begins another line."""
    print(printable(str(text)), file=sys.stdout if file is None else file, flush=True)


def cells(*texts: object) -> list[Any]:
    """Cells of a table of rich: text and no markup, of which nothing steers the terminal."""
    from rich.text import Text

    return [Text(shortened(str(text), 1000)) for text in texts]
