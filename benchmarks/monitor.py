"""What a monitor costs at its default interval, against the training without it."""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable

import torch
import transformers

from benchmarks.timing import table
from taut import control
from taut.control.monitor.gradient_alarm import EVERY, gradient_norm


def _seconds(run: Callable[[], object]) -> float:
    """Processor time, which other work on the machine hardly changes."""
    began = time.process_time()
    run()
    return time.process_time() - began


def cost() -> str:
    """A measurement and a reading of gradients beside the step before, and their share of both."""
    torch.manual_seed(0)
    every = inspect.signature(control.Monitor).parameters["every"].default
    rows = []
    for width, layers, length in ((192, 6, 256), (128, 4, 512)):
        config = transformers.GPT2Config(
            vocab_size=1000, n_embd=width, n_layer=layers, n_head=4, n_positions=length,
            bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM",
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        ids = torch.randint(0, 1000, (2048 // length, length))
        monitor = control.Monitor(model, warn=False)
        monitor.close()

        def step(model=model, optimizer=optimizer, ids=ids) -> None:
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()

        def measure(monitor=monitor, ids=ids) -> None:
            monitor.measure(input_ids=ids)

        def read(model=model) -> None:
            gradient_norm(model.parameters())

        found = [(_seconds(step), _seconds(measure), _seconds(read)) for _ in range(4)][1:]
        share = statistics.median((b / every + c / EVERY) / a for a, b, c in found)
        weights = sum(p.numel() for p in model.parameters()) / 1e6
        rows.append(
            [f"{weights:.1f} million weights, {layers} layers", str(length),
             f"{min(a for a, _, _ in found):.2f}", f"{min(b for _, b, _ in found):.2f}",
             f"{min(c for _, _, c in found) * 1e3:.1f}", f"{share:.2%}"]
        )  # fmt: skip
    names = ["model", "tokens", "seconds of a step", f"of a measurement, one in {every}",
             f"ms of a reading of gradients, one in {EVERY}", "share"]  # fmt: skip
    return table(names, rows)
