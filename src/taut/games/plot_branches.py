"""Plot branches of logit equilibria."""

from __future__ import annotations

import os

import numpy as np

from taut._base.checks import whole_number
from taut._base.optional import needing
from taut.games.branches_answer import LogitBranches
from taut.games.plot import check_plot, save_chart

COLOURS = {"uniform": "#1b6ca8", "bifurcation": "#c44e00", "search": "#2f8f4e"}
NAMES = {
    "uniform": "principal branch",
    "bifurcation": "branch that crosses another",
    "search": "branch found by search",
}
LONGEST = 400  # points of a branch in the picture


def plot_branches(
    found: LogitBranches, path: str | os.PathLike[str], *, player: int = 0, strategy: int = 0
) -> None:
    """Draw how likely a strategy is along all branches, against λ: an .svg, .png or .html file.

    Players and strategies count from 0. Bifurcations are marked by circles.
    """
    check_plot(path)
    with needing("plots need altair and vl-convert", "plot"):
        import altair
        import vl_convert  # noqa: F401  (altair saves with it)
    strategies = found.equilibria.strategies
    player = whole_number(player, name="player", least=0)
    if player >= len(strategies):
        raise ValueError(f"player must be below {len(strategies)}, got {player}")
    strategy = whole_number(strategy, name="strategy", least=0)
    if strategy >= strategies[player].shape[1]:
        raise ValueError(f"strategy must be below {strategies[player].shape[1]}, got {strategy}")
    rows = [
        {
            "scale": float(scale),
            "probability": float(weight),
            "branch": number,
            "order": k,
            "kind": NAMES[branch.origin],
        }
        for number, branch in enumerate(found.branches)
        for k, (scale, weight) in enumerate(
            zip(branch.points.scale, branch.points.strategies[player][:, strategy], strict=True)
        )
        if k % max(1, len(branch.points) // LONGEST) == 0 or k == len(branch.points) - 1
    ]
    crossings = found.bifurcations
    marks = [
        {"scale": float(scale), "probability": float(weight)}
        for scale, weight in zip(
            crossings.scale, np.asarray(crossings.strategies[player])[:, strategy], strict=True
        )
    ]
    kinds = [kind for kind in NAMES if any(row["kind"] == NAMES[kind] for row in rows)]
    colours = altair.Scale(
        domain=[NAMES[kind] for kind in kinds], range=[COLOURS[kind] for kind in kinds]
    )
    x = altair.X("scale:Q", title="scale λ = 1/temperature (1/payoff)").scale(
        type="log", nice=False
    )
    y = altair.Y("probability:Q", title=f"player {player + 1}, strategy {strategy + 1}").scale(
        domain=[0, 1]
    )
    lines = (
        altair.Chart(altair.InlineData(values=rows))
        .mark_line(clip=True)
        .encode(
            x=x,
            y=y,
            detail="branch:N",
            order="order:Q",
            color=altair.Color("kind:N", title=None, scale=colours),
        )
    )
    layers = [lines]
    if marks:
        points = altair.Chart(altair.InlineData(values=marks))
        layers.append(points.mark_point(size=70, color="#222222", filled=False).encode(x=x, y=y))
    title = f"{len(found.equilibria)} logit equilibria at temperature {found.temperature:.4g}"
    chart = altair.layer(*layers).properties(width=520, height=320, background="white", title=title)
    save_chart(chart.configure_legend(orient="bottom", labelLimit=500, symbolType="stroke"), path)
