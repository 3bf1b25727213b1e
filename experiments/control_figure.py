"""Draw and tabulate docs/results/control.json: python experiments/control_figure.py."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import altair as alt

RESULTS = Path("docs/results")
ORDER = ["plain", "VAR-III", "cap", "local constant", "cosine"]
COLOURS = ["#666666", "#4477aa", "#228833", "#ee6677", "#ccbb44"]
PARTS = ("AM", "LA", "LF")


def figure(runs: list[dict[str, Any]]) -> alt.HConcatChart:
    colour = alt.Color(
        "method:N", sort=ORDER, title=None, scale=alt.Scale(domain=ORDER, range=COLOURS),
        legend=alt.Legend(symbolOpacity=1, symbolType="square", orient="bottom"),
    )  # fmt: skip
    curves = [
        {"method": run["method"], "step": at["step"], "loss": at["loss"],
         "penalty": sum(at[part] for part in PARTS)}
        for run in runs for at in run["curve"]
    ]  # fmt: skip
    heads = [
        {"method": run["method"], "constant": value}
        for run in runs for value in run.get("mean constants", ())
    ]  # fmt: skip
    step = alt.X("step:Q", title="step")

    def lines(
        field: str, title: str, ticks: list[int] | None = None, **scale: Any
    ) -> alt.LayerChart:
        axis = alt.Axis() if ticks is None else alt.Axis(values=ticks)
        base = alt.Chart(alt.Data(values=curves)).encode(x=step, color=colour)
        seeds = base.mark_area(opacity=0.2).encode(
            y=alt.Y(f"min({field}):Q", title=title, scale=alt.Scale(**scale), axis=axis),
            y2=f"max({field}):Q",
        )
        return (
            seeds + base.mark_line().encode(y=alt.Y(f"mean({field}):Q", title=title))
        ).properties(width=215, height=200)

    dots = (
        alt.Chart(alt.Data(values=heads))
        .mark_tick(thickness=1.5)
        .encode(
            x=alt.X(
                "constant:Q", title="mean local constant of a head", scale=alt.Scale(zero=True)
            ),
            y=alt.Y("method:N", sort=ORDER, title=None),
            color=colour,
        )
        .properties(width=215, height=200)
    )
    return alt.hconcat(
        lines("loss", "training loss, nats a token", zero=False),
        lines(
            "penalty",
            "AM + LA + LF",
            [500, 1000, 2000, 4000],
            type="log",
            nice=False,
            domain=[500, 4000],
        ),
        dots,
    ).configure(font="sans-serif")


def spread(values: list[float], digits: int = 3) -> str:
    """Mean, least and largest."""
    mean, low, high = (f"{f(values):.{digits}f}" for f in (statistics.mean, min, max))
    return f"{mean} ({low} to {high})"


def rows(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| method | held-out loss | AM + LA + LF, first step → last | largest singular value | "
        "mean local constant | largest range of scores |",
        "|---|---|---|---|---|---|",
    ]
    for method in ORDER:
        mine = [run for run in runs if run["method"] == method]
        first, last = (
            statistics.mean(sum(run["curve"][i][part] for part in PARTS) for run in mine)
            for i in (0, -1)
        )
        audited = [run for run in mine if "mean constants" in run]
        constants = [statistics.mean(run["mean constants"]) for run in audited]
        ranges = [run["largest range of scores"] for run in audited]
        lines.append(
            f"| {method} | {spread([run['held out'] for run in mine])} | "
            f"{first:.0f} → {last:.0f} | {spread([run['sigma'] for run in mine], 2)} | "
            f"{spread(constants) if constants else '–'} | {spread(ranges, 1) if ranges else '–'} |"
        )
    return lines


def facts(runs: list[dict[str, Any]]) -> list[str]:
    caps = [run["largest sigma after each step"] for run in runs if run["method"] == "cap"]
    key = "attention: certificate, measured, searched"
    layers = [layer for run in runs if key in run for _, found in run[key] for layer in found]
    off = max(run["verify against SVD"] for run in runs)
    return [
        f"verify() and NumPy's singular values differ by {off:.1e} at most",
        f"largest singular value after any of the steps under the cap: {max(caps):.7f}",
        f"cosine attention, {len(layers)} measurements: certificate "
        f"{min(c for c, _, _ in layers):.2f} to {max(c for c, _, _ in layers):.2f}, largest share "
        f"of it at real inputs {max(m / c for c, m, _ in layers):.4f}, by ascent "
        f"{max(s / c for c, _, s in layers):.4f}",
    ]


def main() -> None:
    runs = json.loads((RESULTS / "control.json").read_text(encoding="utf-8"))["runs"]
    figure(runs).save(str(RESULTS / "control.svg"))
    print("\n".join([*rows(runs), "", *facts(runs)]))


if __name__ == "__main__":
    main()
