"""The largest entry of every window in ONNX files, by ReLUs: max(a, b) = b + relu(a − b)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.networks.onnx_files.step import Step
from taut.networks.onnx_files.symbols import PlacedEntries
from taut.networks.onnx_files.walk import Walk, reads
from taut.networks.onnx_files.windows import pooled_places

RELU = nn.ReLU()


@reads("MaxPool", "GlobalMaxPool")
def _largest(walk: Walk, step: Step, given: list[Any]) -> PlacedEntries:
    x = walk.entries(given[0])
    rows, lattice = pooled_places(step, x.places)
    inside = rows >= 0
    if not bool(inside.any(dim=1).all()):
        raise walk.unknown("a window of it lies in the padding alone")
    # Padding never is the largest: another entry of the window stands in its place.
    some = rows.gather(1, inside.long().argmax(dim=1, keepdim=True))
    node = walk.laid(x, torch.where(inside, rows, some))
    while node.width > 1:
        node = _halved(walk, node, step.name)
    return walk.placed(node, (1, x.shape[1], *lattice))


def _halved(walk: Walk, node: Any, name: str) -> Any:
    """Tokens of half the width, rounded up, with the larger one of every two entries."""
    run, half = walk.run, node.width // 2
    eye = torch.eye(half, node.width, dtype=torch.float64)
    over = run.activation(run.linear(node, eye - eye.roll(half, dims=1), None, name), RELU, name)
    token = torch.arange(node.tokens)[:, None]
    rest = run.rearrange(node, token * node.width + torch.arange(half, node.width), name)
    more = torch.full((node.tokens, rest.width), -1)  # a last entry without a partner stays
    more[:, :half] = token * half + torch.arange(half)
    return run.add(rest, run.rearrange(over, more, name))
