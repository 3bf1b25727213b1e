"""What rows in float32 would have to add to bounds: why they are carried in float64 only.

``python -m benchmarks.propagation_float32`` bounds networks as they are, and with the rounding that
float32 rows would need: the same proofs, with the unit of float32 in every operation that carries a
row. Centres and limits of remainders stay in float64, so that the price is rather too low. Each
runs in a process of its own, on one thread. ``minilm`` as an argument adds all-MiniLM-L6-v2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.minilm_output import load
from benchmarks.timing import table
from taut import At
from taut.networks.propagation import propagate as steps
from taut.networks.propagation.node import Node
from taut.networks.propagation.result import LINEAR, ROUNDING

UNIT = 2.0**-23
AS_IS, ADDED = "float64", "rounding of float32 added"
NETWORKS = {
    "4 layers of width 64, 6 tokens": (6, 4, 64),
    "4 layers of width 128, 6 tokens": (6, 4, 128),
    "8 layers of width 64, 6 tokens": (6, 8, 64),
}
MINILM = "all-MiniLM-L6-v2, 5 tokens"


def with_unit_of_float32() -> None:
    """Let every operation that carries a row back add what float32 would lose."""
    for kind in _below(Node):
        if "pull" in vars(kind):
            kind.pull = _coarse(kind.pull, sys.modules[kind.__module__])


def _below(kind: type) -> list[type]:
    return [kind, *(lower for each in kind.__subclasses__() for lower in _below(each))]


def _coarse(pull: Callable[..., Any], module: Any) -> Callable[..., Any]:
    def found(*arguments: Any, **named: Any) -> Any:
        before = getattr(module, "EPS", None)
        module.EPS = UNIT
        try:
            return pull(*arguments, **named)
        finally:
            module.EPS = before

    return found


def network(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Module, input and targets."""
    torch.manual_seed(0)
    if name == MINILM:
        model, tokenizer = load()
        ids = tokenizer("The quick brown", return_tensors="pt").input_ids
        x = model.get_input_embeddings()(ids).detach()
        return model, x, torch.randn(8, *x.shape[1:]).double() / 40
    tokens, layers, width = NETWORKS[name]
    layer = nn.TransformerEncoderLayer(
        width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True
    )
    net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).double().eval()
    return net, torch.randn(1, tokens, width).double(), torch.randn(4, tokens, width).double()


def measure(name: str, manner: str) -> dict[str, float]:
    """Size of the bounds near one token, by rows alone, and of their rounding: of linear parts."""
    torch.set_num_threads(1)
    net, x, targets = network(name)
    steps.ellipsoid_radius = lambda *_: None  # type: ignore[assignment]
    if manner == ADDED:
        with_unit_of_float32()
    found = steps.propagate(net, At(x, 1e-3), tokens=[1], targets=targets)
    size = float((found.bound.upper - found.bound.lower).mean() / 2)
    linear = [part.amount for part in found.slack[0] if part.what == LINEAR]
    rounding = sum(part.amount for part in found.slack[0] if part.what == ROUNDING)
    return {"size": size / linear[0], "rounding": rounding / linear[0]}


def main(names: list[str]) -> None:
    """Print the table."""
    rows = []
    for name in names:
        for manner in (AS_IS, ADDED):
            run = [sys.executable, "-m", "benchmarks.propagation_float32", name, manner]
            settings = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            answer = subprocess.run(run, capture_output=True, text=True, env=settings, check=True)
            found = json.loads(answer.stdout.splitlines()[-1])
            rows.append([name, manner, f"{found['size']:.4f}", f"{found['rounding']:.2g}"])
            print(rows[-1], file=sys.stderr, flush=True)
    print(table(["network", "rows", "bound/linear part", "rounding/linear part"], rows))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])))
    else:
        main([*NETWORKS, *([MINILM] if "minilm" in sys.argv else [])])
