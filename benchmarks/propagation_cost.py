"""Cost of propagated bounds against tokens, layers and width: time, memory, and their size.

``python -m benchmarks.propagation_cost`` writes docs/results/propagation-cost.svg and the numbers
beside it (.json), and prints the table. Each bound is found in a process of its own, whose memory
is what it reaches at most above that of a small bound before it. ``propagate`` takes the better one
of rows and ellipsoids from the input on; here each runs by itself.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.timing import table
from taut import At
from taut.networks import Propagation
from taut.networks.propagation import propagate as steps
from taut.networks.propagation.node import UnboundedError
from taut.networks.propagation.result import LINEAR

BASE = {"tokens": 6, "layers": 4, "width": 64}
STEPS = {"tokens": (3, 6, 12, 24), "layers": (2, 4, 8, 16), "width": (32, 64, 128)}
CHECKPOINTS, ROWS, FORWARD = "rows, checkpoints", "rows to the input", "ellipsoids from the input"
WAYS = {CHECKPOINTS: "#0072b2", ROWS: "#d55e00", FORWARD: "#009e73"}
PICTURE = Path(__file__).parents[1] / "docs" / "results" / "propagation-cost.svg"


def bounded(tokens: int, layers: int, width: int, way: str) -> Propagation:
    """Four functions of an encoder with random weights, one token of which moves by 1e-2."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True
    )
    net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).double().eval()
    x, targets = torch.randn(1, tokens, width).double(), torch.randn(4, tokens, width).double()
    return steps.propagate(
        net, At(x, 1e-2), tokens=[1], targets=targets, checkpoints=way == CHECKPOINTS
    )


def measure(tokens: int, layers: int, width: int, way: str) -> dict[str, float | None]:
    """Processor time and memory of one bound, and its size: None where there is no such bound."""
    torch.set_num_threads(1)
    if way == FORWARD:
        steps.Engine = _no_rows  # type: ignore[misc, assignment]
    else:
        steps.ellipsoid_radius = _no_ellipsoids  # type: ignore[assignment]
    bounded(2, 1, 8, way)  # imports and compiles
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = bounded(tokens, layers, width, way)
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = float((found.bound.upper - found.bound.lower).mean() / 2)
    if size == float("inf"):
        return {"seconds": None, "megabytes": None, "size": None, "linear": None}
    linear = [part.amount for part in found.slack[0] if part.what == LINEAR]
    return {
        "seconds": seconds, "megabytes": memory / 1e3, "size": size,
        "linear": linear[0] if linear else None,
    }  # fmt: skip


def _no_rows(*_: Any, **__: Any) -> None:
    raise UnboundedError


def _no_ellipsoids(*_: Any) -> None:
    return None


def _apart(place: dict[str, int], way: str) -> dict[str, Any]:
    """The same in a new process, which gives memory back where it is not used."""
    order = json.dumps([place["tokens"], place["layers"], place["width"], way])
    run = [sys.executable, "-m", "benchmarks.propagation_cost", order]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    answer = subprocess.run(run, capture_output=True, text=True, check=True, env=settings).stdout
    return json.loads(answer.splitlines()[-1])


def _measured() -> list[dict[str, Any]]:
    """Every place along every axis, each way once."""
    points: list[dict[str, Any]] = []
    known: dict[tuple[int, ...], dict[str, Any]] = {}
    for axis, sizes in STEPS.items():
        for size in sizes:
            place = {**BASE, axis: size}
            key = tuple(place.values())
            if key not in known:
                known[key] = {way: _apart(place, way) for way in WAYS}
                print(place, known[key], file=sys.stderr, flush=True)
            points += [
                {"axis": axis, "at": size, "way": way, **place, **known[key][way]} for way in WAYS
            ]
    return points


TICKS = {
    "seconds": ("processor time, seconds", (0.3, 1, 3, 10, 30, 100)),
    "megabytes": ("memory, MB", (50, 100, 200, 500, 1000, 2000)),
}


def picture(points: list[dict[str, Any]]) -> Any:
    """Seconds and megabytes against tokens, layers and width, every axis logarithmic."""
    import altair

    def panel(axis: str, what: str) -> Any:
        shown = [p for p in points if p["axis"] == axis and p["seconds"] is not None]
        title, ticks = TICKS[what]
        first, sizes = axis == "tokens", STEPS[axis]
        fixed = ", ".join(f"{BASE[other]} {other}" for other in BASE if other != axis)
        fixed = fixed.replace("64 width", "width 64")
        return (
            altair.Chart(altair.InlineData(values=shown), title=f"with {fixed}")
            .mark_line(point=altair.OverlayMarkDef(size=45), strokeWidth=2)
            .encode(
                x=altair.X(
                    "at:Q", title=axis,
                    scale=altair.Scale(
                        type="log", nice=False, domain=[sizes[0] / 1.15, sizes[-1] * 1.15]
                    ),
                    axis=altair.Axis(values=list(sizes), format="d", grid=False),
                ),
                y=altair.Y(
                    f"{what}:Q", title=title if first else None,
                    scale=altair.Scale(type="log", nice=False, domain=[ticks[0], ticks[-1]]),
                    axis=altair.Axis(values=list(ticks), format="~g", labels=first),
                ),
                color=altair.Color(
                    "way:N", title=None,
                    scale=altair.Scale(domain=list(WAYS), range=list(WAYS.values())),
                    legend=altair.Legend(orient="top", labelLimit=300),
                ),
                shape=altair.Shape("way:N", title=None, scale=altair.Scale(domain=list(WAYS))),
            )
            .properties(width=190, height=170)
        )  # fmt: skip

    rows = [altair.hconcat(*(panel(axis, what) for axis in STEPS)) for what in TICKS]
    whole = altair.vconcat(*rows).configure(font="sans-serif", background="white")
    return whole.configure_title(fontSize=11, fontWeight="normal")


def _cell(number: float | None, digits: int) -> str:
    return "–" if number is None else f"{number:,.{digits}f}"


def _lines(points: list[dict[str, Any]]) -> list[list[str]]:
    """One line for each place: seconds, memory and slack of every way."""
    places: dict[tuple[int, ...], dict[str, Any]] = {}
    for point in points:
        places.setdefault(tuple(point[axis] for axis in STEPS), {})[point["way"]] = point
    rows = []
    for place, ways in places.items():
        linear = ways[ROWS]["linear"]
        cells = [str(size) for size in place]
        for way in WAYS:
            found = ways[way]
            size = None if found["size"] is None else found["size"] / linear
            cells += [
                _cell(found["seconds"], 1), _cell(found["megabytes"], 0), _cell(size, 3),
            ]  # fmt: skip
        rows.append(cells)
    return rows


def cost() -> str:
    """Measure along each axis, plot, and return the table."""
    points = _measured()
    PICTURE.with_suffix(".json").write_text(json.dumps(points, indent=1) + "\n")
    picture(points).save(str(PICTURE))
    header = [*STEPS]
    for way in WAYS:
        header += [f"{way}: s", "MB", "bound/linear part"]
    return table(header, _lines(points))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        print(cost())
