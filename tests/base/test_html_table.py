"""Tables for notebooks: aligned, and text of others is text."""

from __future__ import annotations

import numpy as np

import taut
from taut._base.html_table import html_facts, html_lines, html_table
from taut.games import solve

SCRIPT = "<script>alert(1)</script>"


def test_words_are_to_the_left_and_numbers_to_the_right():
    shown = html_table(["name", "value"], [["a", "1.0"], ["  b", "22.0"]], numbers=(1,))
    left, right = '<td style="text-align:left', '<td style="text-align:right'
    assert shown.count(left) == shown.count(right) == 2
    assert shown.count("<tr>") == 3


def test_text_is_escaped_and_control_characters_are_written_out():
    nasty = f"{SCRIPT}\x1b[2J"
    for shown in (html_table([nasty], [[nasty]]), html_facts([(nasty, nasty)]), html_lines(nasty)):
        assert "<script>" not in shown
        assert "\x1b" not in shown
        assert r"\x1b[2J" in shown


def test_answers_of_games_are_tables_and_batches_are_lines():
    payoffs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    one = solve(payoffs, temperature=1.0)
    shown = one._repr_html_()
    for name, text in one.facts():
        assert name in shown
        assert text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in shown
    assert shown.count("<tr>") == len(one.facts())
    many = solve(np.stack([payoffs, 2 * payoffs]), temperature=1.0)
    assert "2 of 2 games solved" in many._repr_html_()
    assert "<table>" in one.certificate._repr_html_()


def test_bounds_are_tables():
    shown = taut.local_lipschitz(np.array([0.0, 1.0]), p=2)._repr_html_()
    assert shown.startswith("<table>")
    assert "theorem" in shown
