"""Figures: one legend for plots that show the same things, and ticks that say what they are."""

from __future__ import annotations

import re

import pytest

from taut.reproduce.figures import save_figure
from taut.reproduce.result import Curve, Plot

pytest.importorskip("altair")
pytest.importorskip("vl_convert")


def test_plots_share_a_legend_that_shows_dashes(tmp_path):
    """One plot has all names, so that there is one legend; lines of one name stay apart."""
    x = [5e-7, 1e-6, 2e-6]
    lines = [Curve("found", x, [0.1, 0.2, 0.3]), Curve("found", x, [0.3, 0.2, 0.1])]
    limit = Curve("limit", x, [0.5] * 3, dashed=True)
    points = Curve("found", x, [0.2, 0.1, 0.3], points=True)
    plots = [
        Plot("first", "λ", "y", [*lines, limit], log_x=True),
        Plot("second", "λ", "y", [points], log_x=True),
    ]
    save_figure(plots, tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    texts = re.findall("<text[^>]*>(.*?)</text>", svg)
    assert [texts.count(name) for name in ("found", "limit")] == [1, 1]
    assert [texts.count(tick) for tick in ("5·10⁻⁷", "10⁻⁶", "2·10⁻⁶")] == [2, 2, 2]
    assert len(re.findall(r'stroke-dasharray="5,3"', svg)) == 2  # the line and its symbol
    assert len(re.findall(r'aria-roledescription="line mark"', svg)) == 3
