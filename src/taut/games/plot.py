"""Plot the gap against iterations, beside the certified bound."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taut._base.files import write_whole
from taut._base.optional import needing
from taut.games.certificate import ContractionCertificate

ENDINGS = (".svg", ".png", ".html")
MEASURED, CERTIFIED, ASKED = "measured (best gap so far)", "certified", "asked for"
POINTS = 1000  # of a line: more cannot be seen, and take seconds


def check_plot(path: str | os.PathLike[str]) -> None:
    """Raise an error if no plot can be written to this path, before the work and not after it."""
    place = Path(path)
    if place.is_dir():
        raise ValueError(f"the plot {place} is a directory; give a file")
    if place.suffix.lower() not in ENDINGS:
        raise ValueError(f"the plot {place} must end in {', '.join(ENDINGS)}")
    if not place.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {place.resolve().parent} for the plot")
    _altair()


def _altair() -> Any:
    with needing("plots need altair and vl-convert", "plot"):
        import altair
        import vl_convert  # noqa: F401  (altair saves with it)
    return altair


def plot_gap(
    gaps: Sequence[float],
    certificate: ContractionCertificate,
    target: float,
    path: str | os.PathLike[str],
    *,
    method: str = "auto",
) -> None:
    """Draw the gaps of a run after each iteration into an .svg, .png or .html file.

    Beside the gap of plain iteration or of the predictive update stands the bound for that method;
    beside those of others, for comparison, the better bound of these two.
    """
    check_plot(path)
    altair = _altair()
    # A gap of exactly 0 has no logarithm; it is drawn at the bottom.
    bottom = min([g for g in gaps if g > 0] + [target]) / 10
    length = max(len(gaps), 2)
    name, curve = certified_curve(certificate, length, bottom, method)
    lines = {
        MEASURED: [(k, max(g, bottom)) for k, g in enumerate(gaps, start=1)],
        f"{CERTIFIED} {name}": curve,
        ASKED: [(1, target), (length, target)],
    }
    order = [line for line, points in lines.items() if points]
    rows = [
        {"iteration": k, "gap": g, "line": line}
        for line in order
        for k, g in lines[line][:: max(1, len(lines[line]) // POINTS)]
    ]
    looks = dict(
        zip(lines, (("#1b6ca8", [1, 0]), ("#c44e00", [6, 3]), ("#777777", [2, 2])), strict=True)
    )
    colours = altair.Scale(domain=order, range=[looks[line][0] for line in order])
    dashes = altair.Scale(domain=order, range=[looks[line][1] for line in order])
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
    title = (
        f"duality gap at temperature {certificate.temperature:.4g} (plain iteration is certified "
        f"above {certificate.smallest_temperature:.4g})"
    )
    chart = chart.properties(width=520, height=320, background="white", title=title)
    chart = chart.configure_legend(
        orient="bottom", direction="vertical", labelLimit=500, symbolType="stroke"
    )
    save_chart(chart, path)


def save_chart(chart: Any, path: str | os.PathLike[str]) -> None:
    """Write a chart of Altair into an .svg, .png or .html file that works offline."""
    ending = Path(path).suffix.lower()
    drawn: Any = io.BytesIO() if ending == ".png" else io.StringIO()
    chart.save(drawn, format=ending[1:], **({"inline": True} if ending == ".html" else {}))
    write_whole(drawn.getvalue(), Path(path))


def certified_curve(
    certificate: ContractionCertificate, length: int, bottom: float, method: str
) -> tuple[str, list[tuple[int, float]]]:
    """The bound on the gap after each iteration, by theorem dsfp-gap or predictive, and its name.

    Nothing for plain iteration where it is not certified.
    """
    if method not in ("dsfp", "predictive"):
        method = "dsfp" if certificate.contracts else "predictive"
    if method == "dsfp" and not certificate.contracts:
        return "", []
    first, rate = certificate.gap_bound(method=method)
    steps = np.arange(1, length + 1)
    bounds = first * np.exp((steps - 1) * math.log(max(rate, 1e-300)))
    shown = [(int(k), float(b)) for k, b in zip(steps, bounds, strict=True) if b >= bottom]
    plain = f"for plain iteration ({certificate.factor.theorem[0]})"
    return (plain if method == "dsfp" else "for the predictive update"), shown
