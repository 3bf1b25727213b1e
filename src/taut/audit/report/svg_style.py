"""Colours and lines of all figures, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

STEPS = 16  # of colour
LIGHT = ("#edf3fa", "#5f9fd6", "#08305f")
DARK = ("#1b2835", "#2f74b3", "#b5dcff")
# Less and more, in two colours that colour-blind readers can tell apart.
CHANGE_LIGHT = ("#1d5fa8", "#8fbbe6", "#f1f1f1", "#f0b27a", "#b35806")
CHANGE_DARK = ("#7cb8f2", "#2f5f8f", "#262c33", "#8f5a1f", "#f0a24e")


def style() -> str:
    """The rules that all figures share, in light and dark."""
    light = _steps("d", CHANGE_LIGHT) + _rules(
        LIGHT, ink="#24292f", faint="#656d76", bar="#2f74b3", limit="#b42318"
    )
    dark = _steps("d", CHANGE_DARK) + _rules(
        DARK, ink="#e3e7eb", faint="#8b949e", bar="#6fb1ea", limit="#ff8f80"
    )
    light += _curves("#2f74b3", "#b35900", "#1a7f4b", "#7d4cb8")
    dark += _curves("#6fb1ea", "#e8a456", "#5fc78f", "#bd96ea")
    return (
        "svg text{font:12px system-ui,sans-serif}"
        "svg .name{font:11px ui-monospace,monospace}.end{text-anchor:end}.mid{text-anchor:middle}"
        ".none{fill:none;stroke-dasharray:2}.limit{stroke-width:1.5;stroke-dasharray:4 3}"
        ".curve{fill:none;stroke-width:2}.mark{stroke-width:0}"
        ".dot{fill:#fff;stroke:#000;stroke-width:1}.hollow{fill-opacity:.35}"
        "svg .tiny text{font-size:10px}"
        ".dash1{stroke-dasharray:7 3}.dash2{stroke-dasharray:2 3}.dash3{stroke-dasharray:9 3 2 3}"
        f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    )


def _rules(stops: Sequence[str], *, ink: str, faint: str, bar: str, limit: str) -> str:
    """Colours from low to high through ``stops``, and those of letters and lines."""
    steps = _steps("q", stops)
    return (
        f"{steps}svg text{{fill:{ink}}}svg .faint{{fill:{faint}}}.none,.axis{{stroke:{faint}}}"
        f".bar{{fill:{bar}}}.mean{{stroke:{ink};stroke-width:1.5}}"
        f".limit{{stroke:{limit}}}svg text.says{{fill:{limit}}}"
    )


def _steps(name: str, stops: Sequence[str]) -> str:
    """Rules for the steps of colour from the first stop to the last."""
    known = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops])
    at = np.linspace(0, len(stops) - 1, STEPS)
    mixed = [np.interp(at, range(len(stops)), known[:, i]).round().astype(int) for i in range(3)]
    return "".join(
        f".{name}{step}{{fill:#{r:02x}{g:02x}{b:02x}}}"
        for step, (r, g, b) in enumerate(zip(*mixed, strict=True))
    )


def _curves(*colours: str) -> str:
    return "".join(f".c{i}{{stroke:{c}}}.c{i}.mark{{fill:{c}}}" for i, c in enumerate(colours))
