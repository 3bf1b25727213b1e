"""Cost of propagated bounds against tokens, layers and width, with checkpoints and without.

``python -m benchmarks.propagation_cost`` writes docs/results/propagation-cost.svg and prints the
table. Each bound is found in a process of its own, whose memory is what it reaches at most.
"""

from __future__ import annotations

import json
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
from taut.networks import propagate

BASE = {"tokens": 6, "layers": 4, "width": 64}
STEPS = {"tokens": (3, 6, 12), "layers": (2, 4, 8), "width": (32, 64, 128)}
PICTURE = Path(__file__).parents[1] / "docs" / "results" / "propagation-cost.svg"


def measure(tokens: int, layers: int, width: int, checkpoints: bool) -> dict[str, float]:
    """Processor time and memory of one bound: one token of an encoder with random weights moves."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True
    )
    net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).double().eval()
    x, targets = torch.randn(1, tokens, width).double(), torch.randn(4, tokens, width).double()
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = propagate(net, At(x, 1e-3), tokens=[1], targets=targets, checkpoints=checkpoints)
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = float((found.bound.upper - found.bound.lower).mean())
    return {"seconds": seconds, "megabytes": memory / 1e3, "size": size}


def _apart(place: dict[str, int], *, checkpoints: bool) -> dict[str, Any]:
    """The same in a new process."""
    order = json.dumps([place["tokens"], place["layers"], place["width"], checkpoints])
    run = [sys.executable, "-m", "benchmarks.propagation_cost", order]
    answer = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return json.loads(answer.splitlines()[-1])


def main() -> None:
    """Measure along each axis, plot and print."""
    import altair

    points: list[dict[str, Any]] = []
    for axis, steps in STEPS.items():
        for step in steps:
            place = {**BASE, axis: step}
            for checkpoints in (True, False):
                found = _apart(place, checkpoints=checkpoints)
                way = "checkpoints" if checkpoints else "rows to the input"
                points.append({"axis": axis, "step": step, "way": way, **place, **found})
                print(points[-1], file=sys.stderr, flush=True)
    panels = [
        altair.Chart(altair.InlineData(values=[p for p in points if p["axis"] == axis]))
        .mark_line(point=True)
        .encode(
            x=altair.X("step:Q", title=axis, scale=altair.Scale(type="log")),
            y=altair.Y("seconds:Q", scale=altair.Scale(type="log")),
            color=altair.Color("way:N", title=None),
        )
        .properties(width=220, height=200)
        for axis in STEPS
    ]
    altair.hconcat(*panels).properties(background="white").save(str(PICTURE))
    header = ["tokens", "layers", "width", "checkpoints: s", "MB", "rows to the input: s", "MB"]
    header.append("checkpoints/rows, width of the bound")
    rows = []
    for one, other in zip(points[::2], points[1::2], strict=True):
        cells = [f"{p[key]:.{digits}f}" for p in (one, other) for key, digits in FORMAT]
        ratio = f"{one['size'] / other['size']:.3f}"
        rows.append([str(one[axis]) for axis in STEPS] + [*cells, ratio])
    print(table(header, rows))


FORMAT = (("seconds", 1), ("megabytes", 0))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        main()
