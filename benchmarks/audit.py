"""What an audit costs, against the forward pass with fused attention."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import torch

from benchmarks.timing import best_times, table
from taut import audit

TOKENS = 512


def shaped(layers: int = 12, head: bool = True):
    """GPT-2 small's shape, random weights; scores spread as in trained models."""
    transformers = __import__("transformers")
    torch.manual_seed(0)
    kind = transformers.GPT2LMHeadModel if head else transformers.GPT2Model
    model = kind(transformers.GPT2Config(n_layer=layers, attn_implementation="sdpa")).eval()
    with torch.no_grad():
        for block in getattr(model, "transformer", model).h:
            block.attn.c_attn.weight[:, : 2 * 768] *= 4
    return model, torch.randint(0, 50257, (1, TOKENS))


def recipe(seen) -> None:
    """The recipe of Nair (2025) on all rows: a random step of each size in each norm."""
    before = torch.softmax(seen.scores, dim=-1)
    for epsilon in audit.Settings().epsilons:
        for p in audit.Settings().norms:
            step = torch.randn_like(seen.scores)
            step *= epsilon / torch.linalg.vector_norm(step, p, dim=-1, keepdim=True)
            moved = torch.softmax(seen.scores + step, dim=-1) - before
            (torch.linalg.vector_norm(moved, p, dim=-1) / epsilon).max()


def cost() -> str:
    """In a process whose idle OpenMP threads sleep, as `taut audit` starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit"], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    return done.stdout.strip()


def measured() -> str:
    lines = []
    for head in (True, False):
        model, ids = shaped(head=head)
        exact = audit.Auditor(model, norms=[])
        grid = audit.Auditor(model)

        def forward(model=model, ids=ids):
            with torch.no_grad():
                model(input_ids=ids)

        def add(auditor, ids=ids):
            auditor.record.seen = []  # rows are sampled from the first samples: always the first
            auditor.add({"input_ids": ids}, first=0)

        def plain(model=model, ids=ids):
            with torch.no_grad(), audit.capture(model, recipe):
                model(input_ids=ids)

        sampled = "audit with Nair's grid (4 ε × 4 p, one row of each layer and sample)"
        found = best_times(
            {
                "forward pass, fused attention": forward,
                "audit, exact constants of all rows": partial(add, exact),
                sampled: partial(add, grid),
            },
            repeats=4,
            budget=60,
        )
        if head:
            found |= best_times({"Nair's recipe in torch, all rows": plain}, repeats=1, budget=1)
        base = next(iter(found.values()))
        shape = "with" if head else "without"
        lines += [
            [f"{name}; {shape} the output layer", f"{t:.2f}", f"{t / base:.2f}"]
            for name, t in found.items()
        ]
    return table(["GPT-2 small, 1 × 512 tokens", "seconds", "ratio"], lines)


_MEMORY = """
import threading, time, torch
from benchmarks.audit import shaped
from taut import audit
model, ids = shaped(layers={layers}, head=False)
auditor = audit.Auditor(model)
def run(ids):
    if {audited}:
        auditor.record.seen = []
        auditor.add({{"input_ids": ids}}, first=0)
    else:
        with torch.no_grad():
            model(input_ids=ids)
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
run(ids)  # compiles, and takes what stays
before, most, ends = held(), 0, False
def watch():
    global most
    while not ends:
        most = max(most, held())
        time.sleep(0.001)
thread = threading.Thread(target=watch)
thread.start()
for _ in range({batches}):
    run(ids)
ends = True
thread.join()
print(most - before)
"""


def memory() -> str:
    """Peak memory above the model's own, in fresh processes."""
    lines = []
    for layers, batches in ((2, 1), (2, 8), (12, 1), (12, 8)):
        found = []
        for audited in (False, True):
            code = _MEMORY.format(layers=layers, batches=batches, audited=audited)
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            found.append(int(done.stdout) / 2**20)
        lines.append([str(layers), str(batches), *(f"{value:.0f}" for value in found)])
    return table(["layers", "batches", "forward pass, MB", "audit, MB"], lines)


if __name__ == "__main__":
    print(measured())
