"""The built page, as it ships with taut."""

from __future__ import annotations

from pathlib import Path

from taut._base.files import write_whole

BUILT = Path(__file__).with_name("explore.html")


def page() -> str:
    """Text of the interactive page: one HTML file with its scripts, styles and models inside."""
    return BUILT.read_text(encoding="utf-8")


def open_address(file: str | Path | None = None) -> str:
    """Address under which a browser finds the page: a copy of yours, or the one inside taut."""
    return (BUILT if file is None else Path(file)).resolve().as_uri()


def write_page(file: str | Path) -> Path:
    """Write the interactive page to a file, whole or not at all, and return its path."""
    target = Path(file)
    write_whole(page(), target)
    return target
