"""Every theorem of the registry is complete and is checked by marked tests."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from taut import theorems
from tests.helpers.places import TESTS

ASPECTS = {"holds", "attained", "derivative", "falsifiable"}


@cache
def marked() -> dict[str, set[str]]:
    """Aspects under which the test files mark each theorem."""
    found: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.theorem":
                theorem_id, aspect = (argument.value for argument in node.args)
                found.setdefault(theorem_id, set()).add(aspect)
    return found


@pytest.mark.parametrize("theorem_id", theorems.THEOREMS)
def test_every_theorem_is_checked(theorem_id):
    aspects = marked().get(theorem_id, set())
    assert aspects <= ASPECTS
    assert {"holds", "falsifiable"} <= aspects
    if theorems.get(theorem_id).tight != "equality":
        assert "attained" in aspects


def test_no_mark_without_a_theorem():
    assert set(marked()) <= set(theorems.THEOREMS)


def test_entries_are_complete():
    for theorem_id, theorem in theorems.THEOREMS.items():
        assert theorem.id == theorem_id
        for field in ("section", "statement", "domain", "why", "tight", "source"):
            assert getattr(theorem, field), (theorem_id, field)
        assert not re.search(r"\bS\d\b", str(theorem))  # papers go by author and year
        assert theorem.source.split(",")[0].split(";")[0].startswith(tuple(theorems.SOURCES))
        assert theorem_id in str(theorem)


def test_errata_are_complete():
    assert len(theorems.ERRATA) == 16
    assert all(e.where and e.says and e.true for e in theorems.ERRATA)
