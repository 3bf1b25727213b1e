"""What a certificate costs, against one forward and backward pass of the same model."""

from __future__ import annotations

import time

import torch

import taut
import taut.networks as tt
from benchmarks.timing import table
from taut.networks import weight_cache as _cache

TOKENS = 512


def best(run, repeats=3):
    found = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - start)
    return found


def cost() -> str:
    """GPT-2 small's shape with random weights: the time does not depend on them."""
    transformers = __import__("transformers")
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    ids = torch.randint(0, model.config.vocab_size, (1, TOKENS))
    x = model.get_input_embeddings()(ids).detach()

    def step():
        embeddings = x.clone().requires_grad_(True)
        model(inputs_embeds=embeddings, labels=ids).loss.backward()

    step()
    plain = best(step)
    began = time.perf_counter()
    tt.certify(model, x, measure=False)
    first = time.perf_counter() - began
    again = best(lambda: tt.certify(model, x, measure=False))
    ball = best(lambda: tt.certify(model, taut.Everywhere((TOKENS, 768)), measure=False), 1)
    _cache._KEPT.clear()
    rows = [
        ["one forward and backward pass", f"{plain:.1f}", "1"],
        ["certificate at the inputs, first time", f"{first:.1f}", f"{first / plain:.1f}"],
        ["the same, spectral norms cached", f"{again:.1f}", f"{again / plain:.1f}"],
        ["certificate for all inputs, cached", f"{ball:.1f}", f"{ball / plain:.1f}"],
    ]
    return table(["GPT-2 small, 512 tokens", "seconds", "ratio"], rows)
