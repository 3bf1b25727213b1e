"""Tables of HTML for notebooks: words to the left, numbers to the right, everything escaped.

Notebooks set all cells to the right unless a cell says otherwise, so every cell says it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from taut._base.terminal_text import printable


def html_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()
) -> str:
    """A table with a heading for each column; ``numbers`` are the places of those with numbers."""
    head = "".join(_cell("th", text, place in numbers) for place, text in enumerate(headings))
    body = "".join(
        f"<tr>{''.join(_cell('td', text, place in numbers) for place, text in enumerate(row))}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_facts(facts: Iterable[tuple[str, str]]) -> str:
    """A table of names and texts."""
    body = "".join(
        f"<tr>{_cell('th', name, False, ' scope=row')}{_cell('td', text, False)}</tr>"
        for name, text in facts
    )
    return f"<table><tbody>{body}</tbody></table>"


def html_lines(text: str) -> str:
    """Lines of text as paragraphs."""
    return "".join(f"<p>{_escaped(line)}</p>" for line in text.splitlines())


def _cell(tag: str, text: str, number: bool, more: str = "") -> str:
    side = "right" if number else "left"
    # Spaces at the beginning show how deep something lies in a tree.
    return f'<{tag}{more} style="text-align:{side};white-space:pre-wrap">{_escaped(text)}</{tag}>'


def _escaped(text: str) -> str:
    from html import escape  # not at the top: it would slow down `import taut`

    return escape(printable(text))
