"""What the registry holds: statements, and places where a source is wrong."""

from __future__ import annotations

from typing import NamedTuple


class Theorem(NamedTuple):
    """One statement: what it says, where it holds, why, how tight it is and who proved it."""

    id: str
    section: str
    statement: str
    domain: str
    why: str
    tight: str
    source: str

    def __str__(self) -> str:
        return f"{self.id}: {self.statement} [{self.domain}] ({self.source})"


class Erratum(NamedTuple):
    """A place where a source is wrong or silent, and what this library implements."""

    where: str
    says: str
    true: str
