"""Expressions in parentheses, as VNN-LIB and SMT-LIB write them, with the lines they stand in."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PARTS = re.compile(r"[()]|[^\s()]+")


class VnnlibError(ValueError):
    """Something in a VNN-LIB file that cannot be read; the message names its line."""

    def __init__(self, line: int, why: str) -> None:
        self.line = line
        super().__init__(f"line {line}: {why}")


@dataclass(frozen=True)
class Word:
    """A name, a number or an operator."""

    text: str
    line: int


@dataclass(frozen=True)
class Group:
    """What stands in parentheses."""

    parts: tuple[Word | Group, ...]
    line: int

    @property
    def head(self) -> str:
        """The operator in front, empty if there is none."""
        first = self.parts[0] if self.parts else None
        return first.text if isinstance(first, Word) else ""


def parsed(text: str) -> list[Group]:
    """All expressions of a text; a comment goes from a semicolon to the end of the line."""
    found: list[Group] = []
    open_: list[tuple[int, list[Word | Group]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        for match in _PARTS.finditer(line.split(";", 1)[0]):
            part = match.group()
            if part == "(":
                open_.append((number, []))
            elif not open_:
                raise VnnlibError(number, f"{part!r} stands outside of parentheses")
            elif part == ")":
                begin, parts = open_.pop()
                group = Group(tuple(parts), begin)
                (open_[-1][1] if open_ else found).append(group)
            else:
                open_[-1][1].append(Word(part, number))
    if open_:
        raise VnnlibError(open_[0][0], "this parenthesis is not closed")
    return found
