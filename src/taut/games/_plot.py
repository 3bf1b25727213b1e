"""The gap against iterations, with what was certified beforehand beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from taut.games._certificate import Certificate

ENDINGS = (".svg", ".png", ".html")
MEASURED, CERTIFIED, ASKED = "measured (best gap so far)", "certified", "asked for"


def plot_gap(
    gaps: Sequence[float], certificate: Certificate, target: float, path: str | os.PathLike[str]
) -> None:
    """Draw the gaps of a run after each iteration into an .svg, .png or .html file."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS:
        raise ValueError(f"the plot {os.fspath(path)!r} must end in {', '.join(ENDINGS)}")
    try:
        import altair
    except ImportError:
        raise ImportError("plots need altair: pip install 'taut[plot]'") from None
    # A gap of exactly 0 has no logarithm; it is drawn at the bottom.
    bottom = min([g for g in gaps if g > 0] + [target]) / 10
    rows = [
        {"iteration": k, "gap": max(g, bottom), "line": MEASURED}
        for k, g in enumerate(gaps, start=1)
    ]
    name, curve = certified_curve(certificate, max(len(gaps), 2), bottom)
    rows += [{"iteration": k, "gap": g, "line": f"{CERTIFIED} ({name})"} for k, g in curve]
    rows += [{"iteration": k, "gap": target, "line": ASKED} for k in (1, max(len(gaps), 2))]
    order = [MEASURED, f"{CERTIFIED} ({name})", ASKED]
    colours = altair.Scale(domain=order, range=["#1b6ca8", "#c44e00", "#777777"])
    dashes = altair.Scale(domain=order, range=[[1, 0], [6, 3], [2, 2]])
    base = altair.Chart(altair.InlineData(values=rows)).encode(
        x=altair.X("iteration:Q", axis=altair.Axis(tickMinStep=1, format="d")),
        y=altair.Y("gap:Q", title="duality gap (units of payoff)")
        .scale(type="log")
        .axis(format=".0e"),
        color=altair.Color("line:N", title=None, scale=colours),
        strokeDash=altair.StrokeDash("line:N", title=None, scale=dashes),
    )
    dots = base.transform_filter(altair.datum.line == MEASURED)
    chart = altair.layer(base.mark_line(), dots.mark_point(filled=True, size=30, strokeDash=[1, 0]))
    chart = chart.properties(width=520, height=320, background="white")
    chart = chart.configure_legend(
        orient="bottom", direction="vertical", labelLimit=500, symbolType="stroke"
    )
    # Through a temporary file: a full disk or Ctrl-C must not leave half a picture.
    draft = Path(path).with_name(f".{os.path.basename(path)}.part{ending}")
    try:
        chart.save(str(draft), **({"inline": True} if ending == ".html" else {}))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def certified_curve(
    certificate: Certificate, length: int, bottom: float
) -> tuple[str, list[tuple[int, float]]]:
    """The bound on the gap after each iteration: of plain iteration, or else the predictive update.

    It starts where the bound of theorem dsfp-gap (or predictive) starts, and ends with the run.
    """
    method = "dsfp" if certificate.contracts else "predictive"
    first, rate = certificate.gap_bound(method=method)
    steps = np.arange(1, length + 1)
    bounds = first * np.exp((steps - 1) * math.log(max(rate, 1e-300)))
    shown = [(int(k), float(b)) for k, b in zip(steps, bounds, strict=True) if b >= bottom]
    name = "plain iteration, " + certificate.factor.theorem[0]
    return (name if method == "dsfp" else "predictive update"), shown
