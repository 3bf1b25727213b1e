"""Draw the plots of a result: one legend for plots with the same curves, ticks at round numbers."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from taut._base.files import write_whole
from taut._base.optional import needing
from taut.reproduce.result import Curve, Plot

WIDTH, HEIGHT, COLUMNS = 300, 200, 2
LINE = 18  # height of a line with a name
LONGEST_TITLE = 48  # letters
# Colours that people who see fewer of them can tell apart (Okabe and Ito 2008); bounds are grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b8a800")
BOUND = "#666666"
MOST_TICKS = 7
LETTERS = 52  # of a legend, below one plot


def chart(plots: Sequence[Plot]) -> Any:
    """All plots as an Altair chart; neighbours with the same curves share a legend."""
    with needing("figures need altair and vl-convert", "plot"):
        import altair
        import vl_convert  # noqa: F401  (altair saves with it)
    groups = _groups(plots)
    drawn = []
    for group in groups:
        across = 3 if len(group) == 3 else min(len(group), COLUMNS)  # no empty place beside them
        alike = [_draw(altair, plot, group, across) for plot in group]
        joined = altair.concat(*alike, columns=across, align="all", spacing=24)
        shared = joined.resolve_scale(color="shared", strokeDash="shared")
        drawn.append(shared.resolve_scale(x="independent", y="independent"))
    alone = all(len(group) == 1 for group in groups)  # each with a legend of its own
    whole = altair.concat(*drawn, columns=COLUMNS if alone else 1, spacing=30)
    whole = whole.resolve_scale(color="independent", strokeDash="independent")
    styled = whole.configure(font="sans-serif", background="white", padding=8)
    titled = styled.configure_title(fontSize=12, anchor="start", limit=WIDTH + 60)
    return titled.configure_legend(labelLimit=400).configure_axis(
        gridColor="#e6e6e6", domainColor="#888888", tickColor="#888888", titleFontWeight="normal"
    )


def save_figure(plots: Sequence[Plot], path: Path) -> None:
    """All plots in a file, .svg, .png or .html, whole or not at all."""
    ending = path.suffix.lower()
    if ending not in (".svg", ".png", ".html"):
        raise ValueError(f"a figure is an .svg, .png or .html file, got {path.name!r}")
    drawn: Any = io.BytesIO() if ending == ".png" else io.StringIO()
    more: dict[str, Any] = {"inline": True} if ending == ".html" else {}
    chart(plots).save(drawn, format=ending[1:], scale_factor=2 if ending == ".png" else 1, **more)
    write_whole(drawn.getvalue(), path)


def _names(curves: Sequence[Curve]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(curve.name for curve in curves))


def _groups(plots: Sequence[Plot]) -> list[list[Plot]]:
    """Plots that share a legend: all, if one has all names of the others; else equal neighbours."""
    names = [set(_names(plot.curves)) for plot in plots]
    if set().union(*names) in names:
        return [list(plots)]
    return [list(group) for _, group in groupby(plots, key=lambda plot: _names(plot.curves))]


def _draw(altair: Any, plot: Plot, group: Sequence[Plot], across: int) -> Any:
    """One plot of a group, so many of which stand in a line above their legend."""
    rows = [
        {"x": x, "y": y, "curve": curve.name, "kind": _kind(curve), "line": line}
        for line, curve in enumerate(plot.curves)
        for x, y in zip(curve.x, curve.y, strict=True)
        if not plot.log_y or y > 0
    ]
    curves = [curve for each in group for curve in each.curves]
    width = WIDTH if across <= COLUMNS else WIDTH * COLUMNS // across
    columns = max(1, across * LETTERS * width // WIDTH // (max(map(len, _names(curves))) + 5))
    legend = altair.Legend(
        orient="bottom", columns=columns, symbolType="stroke", symbolSize=200, symbolStrokeWidth=2
    )
    scattered = any(curve.points for curve in plot.curves)  # then room around points, not 0
    base = altair.Chart(altair.InlineData(values=rows)).encode(
        x=_axis(altair, altair.X, "x", plot.x, rows, log=plot.log_x, zero=False),
        y=_named_axis(altair, plot.names) if plot.names else _axis(
            altair, altair.Y, "y", plot.y, rows, log=plot.log_y,
            zero=not (plot.log_y or scattered),
        ),
        color=altair.Color(
            "curve:N", title=None, scale=_colours(altair, curves), legend=legend
        ),
        strokeDash=altair.StrokeDash(  # the same names: so the legend shows dashes, too
            "curve:N", title=None, scale=_dashes(altair, curves), legend=legend
        ),
        detail="line:N",
    )  # fmt: skip
    lines = base.mark_line().transform_filter("datum.kind != 'points'")
    small = base.mark_point(size=14, filled=True).transform_filter("datum.kind == 'found'")
    large = base.mark_point(size=40, filled=True).transform_filter("datum.kind == 'points'")
    return (lines + small + large).properties(
        title=_wrapped(plot.title, LONGEST_TITLE * width // WIDTH),
        width=width,
        height=max(HEIGHT, LINE * len(plot.names)),
    )


def _colours(altair: Any, curves: Sequence[Curve]) -> Any:
    """A colour for each name; names of nothing but bounds are grey."""
    names = list(_names(curves))
    found = [name for name in names if any(c.name == name and not c.dashed for c in curves)]
    if len(found) > len(COLOURS):
        return altair.Scale(domain=names, scheme="tableau20")
    given = dict(zip(found, COLOURS, strict=False))
    bounds = [name for name in names if name not in found]
    if len(bounds) == len(found) > 1:  # each has its bound
        given |= {bound: given[name] for bound, name in zip(bounds, found, strict=True)}
    return altair.Scale(domain=names, range=[given.get(name, BOUND) for name in names])


def _dashes(altair: Any, curves: Sequence[Curve]) -> Any:
    """Dashes for the names of nothing but bounds; points are not lines."""
    names = list(_names(curves))
    solid = {curve.name for curve in curves if not (curve.dashed or curve.points)}
    bounds = {curve.name for curve in curves if curve.dashed} - solid
    return altair.Scale(domain=names, range=[[5, 3] if n in bounds else [1, 0] for n in names])


def _axis(
    altair: Any, channel: Any, field: str, title: str, rows: list[dict[str, Any]], *, log: bool,
    zero: bool,
) -> Any:  # fmt: skip
    """An axis with ticks at round numbers."""
    if not log:
        scale = altair.Scale(type="linear", zero=zero, nice=True)
        ticks = altair.Axis(tickCount=6, labelOverlap=True)
        return channel(f"{field}:Q", title=title, scale=scale, axis=ticks)
    values = decades([row[field] for row in rows if row[field] > 0])
    ticks = altair.Axis(values=values, labelExpr=_LABEL)
    return channel(
        f"{field}:Q", title=title, scale=altair.Scale(type="log", nice=False), axis=ticks
    )


def _named_axis(altair: Any, names: Sequence[str]) -> Any:
    """An axis with a word at each whole number."""
    scale = altair.Scale(type="linear", domain=[0.5, len(names) + 0.5], nice=False)
    words = json.dumps(list(names), ensure_ascii=False)
    ticks = altair.Axis(
        values=list(range(1, len(names) + 1)), labelExpr=f"{words}[datum.value - 1]", labelLimit=300
    )
    return altair.Y("y:Q", title=None, scale=scale, axis=ticks)


def decades(values: Sequence[float]) -> list[float]:
    """Ticks of a logarithmic axis: powers of ten, or 1, 2 and 5 times one where there are few.

    Examples
    --------
    >>> decades([0.001, 10])
    [0.001, 0.01, 0.1, 1.0, 10.0]
    >>> decades([2, 30])
    [2.0, 5.0, 10.0, 20.0]
    """
    if not values:
        return []
    low, high = min(values) * (1 - 1e-9), max(values) * (1 + 1e-9)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [float(f"1e{power}") for power in powers if low <= 10.0**power <= high]
    if len(tens) < 3:
        fine = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
        return [value for value in fine if low <= value <= high]
    return tens[:: math.ceil(len(tens) / MOST_TICKS)]


def _label() -> str:
    """Vega's expression for 0.01, 10⁻⁸ and 5·10⁻⁷: long numbers have a power of ten."""
    exponent = "floor(log(datum.value) / LN10 + 1e-9)"
    digit = f"round(datum.value / pow(10, {exponent}))"
    power = f"toString({exponent})"
    for plain, raised in zip("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True):
        power = f"replace({power}, /{plain}/g, '{raised}')"
    short = "datum.value >= 0.001 && datum.value < 100000"
    times = f"({digit} == 1 ? '' : {digit} + '·')"
    return f"{short} ? format(datum.value, ',~r') : {times} + '10' + {power}"


_LABEL = _label()


def _kind(curve: Curve) -> str:
    if curve.points:
        return "points"
    return "bound" if curve.dashed else "found"


def _wrapped(title: str, longest: int) -> list[str]:
    """A title in lines that fit its plot, broken after commas."""
    lines = [""]
    for part in title.split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > longest:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return lines
