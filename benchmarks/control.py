"""What constraints cost in a training step at transformer-base shape, against the plain step."""

from __future__ import annotations

import subprocess
import sys
import time

import torch
from torch import nn

from benchmarks.timing import table
from taut import control

WIDTH, INNER, HEADS, TOKENS = 512, 2048, 8, 4096
LAYERS = 2  # of encoder and decoder each: the ratio does not depend on it


def build(length: int):
    """A transformer without embeddings and output layer, which would only dilute the cost."""
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, INNER, batch_first=True).train()
    source, target = torch.randn(2, TOKENS // length, length, WIDTH).unbind(0)
    mask = nn.Transformer.generate_square_subsequent_mask(length)

    def forward():
        return model(source, target, tgt_mask=mask, tgt_is_causal=True).square().mean()

    return model, forward


def plain_penalty(model) -> torch.Tensor:
    """LA and LF as one would write them down."""
    total = torch.zeros(())
    for block in control.find_blocks(model):
        weights = [w.matrix() for w in block.weights.values()]
        groups = weights if block.kind != "attention" else [
            torch.cat([*weights[:3], weights[3].mT])
        ]  # fmt: skip
        for w in groups:
            total = total + (w.mT @ w - torch.eye(w.shape[1])).square().sum()
    return total


def written_out(model, length: int):
    """AM as one would write it down: the weights of every head in the graph."""
    terms: list[torch.Tensor] = []

    def note(seen) -> None:
        scores = seen.query @ seen.key.mT * seen.factor
        if seen.bias is not None:
            scores = scores + seen.bias
        if seen.causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        a = scores.softmax(dim=-1)
        terms.append((a.mT @ a - torch.eye(length)).square().sum() / len(a))

    from taut.control._watch import Watch

    modules = dict(model.named_modules())
    blocks = [b for b in control.find_blocks(model) if b.kind == "attention"]
    Watch({b.path: modules[b.path] for b in blocks}, note, lambda: True)
    return terms


def ways(length: int, names):
    """A step for each way, on a model of its own."""
    found = {}
    for name in names:
        model, forward = build(length)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        extra = lambda: 0.0  # noqa: E731
        if name == "LA + LF":
            control.constrain(model, ["LA", "LF"], strength=1e-8).attach(optimizer)
        elif name == "LA + LF, written out":
            extra = lambda m=model: 1e-8 * plain_penalty(m)  # noqa: E731
        elif name.startswith("AM, written out"):
            terms = written_out(model, length)
            extra = lambda t=terms: 1e-8 * _taken(t)  # noqa: E731
        elif name.startswith("AM"):
            probes = 4 if "4 probes" in name else 0
            constraint = control.constrain(model, "AM", strength=1e-8, probes=probes)
            extra = constraint.penalty

        def step(forward=forward, optimizer=optimizer, extra=extra):
            loss = forward() + extra()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        found[name] = step
    return found


def _taken(terms):
    total = sum(terms)
    terms.clear()
    return total


def cost() -> str:
    rows = []
    for length in (64, 512):
        names = ["plain", "AM, exact", "AM, 4 probes", "AM, written out"]
        if length == 64:
            names[1:1] = ["LA + LF", "LA + LF, written out"]
        steps = ways(length, names)
        for step in steps.values():
            step()
        best = dict.fromkeys(steps, float("inf"))
        for _ in range(4):  # in turn, so that noise hits all
            for name, step in steps.items():
                began = time.perf_counter()
                step()
                best[name] = min(best[name], time.perf_counter() - began)
        for name, seconds in best.items():
            ratio = seconds / best["plain"]
            rows.append([str(length), name, f"{seconds:.2f}", f"{ratio:.2f}"])
    return table(["tokens of a sentence", "step", "seconds", "ratio"], rows)


_MEMORY = """
import resource, torch
from benchmarks.control import ways
(step,) = ways({length}, [{name!r}]).values()
step()
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def memory() -> str:
    """Peak memory of a step, in fresh processes."""
    rows = []
    for length in (64, 512):
        base = None
        for name in ("plain", "AM, exact", "AM, written out"):
            code = _MEMORY.format(length=length, name=name)
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            found = int(done.stdout)
            base = base or found
            rows.append([str(length), name, str(found), f"{found / base:.2f}"])
    return table(["tokens of a sentence", "step", "MB", "ratio"], rows)
