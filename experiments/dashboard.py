"""A dashboard of two trainings, drawn from what the monitor logs: python experiments/dashboard.py.

A small GPT-2 on tiny Shakespeare at a rate that is too high for it, twice from the same seed: as it
is, and with QKClip, which scales down the maps of heads whose scores exceed a limit. The logs go to
docs/results/dashboard.json, the picture to docs/results/dashboard.svg.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import altair as alt
import torch
from control_shakespeare import BATCH, LENGTH, new_model
from text import batch, plays, tokenizer_for, tokens

from taut import control
from taut._base.files import write_whole

STEPS, EVERY, RATE, LIMIT, SEED = 400, 10, 1e-2, 10.0, 0
RUNS, COLOURS = ["plain", "QKClip"], ["#d55e00", "#0072b2"]
LAYERS = 3
PANELS = {
    "loss": ("training loss (nats a token)", "linear"),
    "taut/local_constant": ("taut/local_constant: mean, at most ½", "linear"),
    "taut/entropy": ("taut/entropy: mean, nats", "linear"),
    "taut/lowest_entropy": ("taut/lowest_entropy: of a head, nats", "linear"),
    "taut/largest_score": ("taut/largest_score", "symlog"),
}


def train(kind: str, row: torch.Tensor) -> list[dict[str, Any]]:
    """Train once, and return every line of the log."""
    model, lines = new_model(SEED).train(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    if kind == "QKClip":
        control.QKClip(model, limit=LIMIT).start(optimizer)
    monitor = control.Monitor(
        model, every=EVERY, heads=True, warn=False,
        log=lambda values, step: lines.append({"run": kind, "step": step, **values}),
    )  # fmt: skip
    source = torch.Generator().manual_seed(SEED)
    for step in range(STEPS):
        ids = batch(row, BATCH, LENGTH, source)
        loss = model(input_ids=ids, labels=ids).loss
        if step % EVERY == 0:
            lines.append({"run": kind, "step": step, "loss": loss.item()})
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.step()
    return lines


def panel(lines: list[dict[str, Any]], key: str, title: str, scale: str) -> alt.Chart:
    """One curve for each run."""
    rows = [
        {"run": line["run"], "step": line["step"], "value": line[key]}
        for line in lines if key in line
    ]  # fmt: skip
    ticks = {"values": [0, 1, 3, 10, 30, 100]} if scale == "symlog" else {}
    return (
        alt.Chart(alt.Data(values=rows), title=title)
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(values=list(range(0, STEPS + 1, 100)))),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(type=scale, zero=False, nice=True),
                    axis=alt.Axis(minExtent=30, tickCount=4, **ticks)),
            color=alt.Color("run:N", sort=RUNS, scale=alt.Scale(domain=RUNS, range=COLOURS),
                            legend=alt.Legend(title=None, orient="top", direction="horizontal")),
        )
        .properties(width=300, height=150)
    )  # fmt: skip


def heads(lines: list[dict[str, Any]], kind: str) -> alt.Chart:
    """The mean constant of every head over the steps, one row each."""
    rows = [
        {"step": line["step"], "head": key.removeprefix("taut/").removesuffix("/local_constant"),
         "value": value}
        for line in lines if line["run"] == kind
        for key, value in line.items() if key.endswith("/local_constant") and "/head_" in key
    ]  # fmt: skip
    return (
        alt.Chart(alt.Data(values=rows), title=f"{kind}: local_constant of every head")
        .mark_rect()
        .encode(
            x=alt.X("step:O", title="step", axis=alt.Axis(
                values=list(range(0, STEPS, 100)), labelAngle=0, grid=False)),
            y=alt.Y("head:N", title=None, axis=alt.Axis(labelFontSize=9, grid=False)),
            color=alt.Color("value:Q", title="mean", scale=alt.Scale(
                scheme="viridis", domain=[0, 0.5])),
        )
        .properties(width=300, height=12 * 12)
    )  # fmt: skip


def figure(lines: list[dict[str, Any]]) -> alt.VConcatChart:
    """All panels, two beside each other."""
    drawn = [panel(lines, key, *how) for key, how in PANELS.items()]
    by_layer = [
        panel(lines, f"taut/layer_{layer:02d}/largest_score",
              f"taut/layer_{layer:02d}/largest_score", "symlog")
        for layer in range(LAYERS)
    ]  # fmt: skip
    every = [*drawn, *by_layer]
    curves = alt.vconcat(*(alt.hconcat(*every[i : i + 2]) for i in range(0, len(every), 2)))
    maps = alt.hconcat(*(heads(lines, kind) for kind in RUNS))
    whole = alt.vconcat(curves, maps).configure(font="sans-serif", background="white")
    return whole.configure_title(fontSize=12, anchor="start").configure_axis(grid=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    parser.add_argument("--draw", action="store_true", help="Draw the logs that are there.")
    given = parser.parse_args()
    kept = given.results / "dashboard.json"
    if not given.draw:
        learn, _ = plays()
        row = tokens(tokenizer_for(learn, 512), learn)
        lines = [line for kind in RUNS for line in train(kind, row)]
        short = [
            {key: round(value, 5) if isinstance(value, float) else value
             for key, value in line.items()}
            for line in lines
        ]  # fmt: skip
        text = ",\n".join(json.dumps(line) for line in short)
        write_whole(f"[\n{text}\n]\n", kept)
    lines = json.loads(kept.read_text(encoding="utf-8"))
    figure(lines).save(str(given.results / "dashboard.svg"))
    for kind in RUNS:
        mine = [line for line in lines if line["run"] == kind]
        last = [line for line in mine if "taut/largest_score" in line][-1]
        losses = [line["loss"] for line in mine if "loss" in line]
        print(f"{kind}: loss {losses[-1]:.3f}, largest of {max(losses[5:]):.3f} after step 50, "
              f"largest score {last['taut/largest_score']:.1f}, "
              f"lowest entropy {last['taut/lowest_entropy']:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
