"""Spectral norms of the projections of an attention module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


def projections(modules: dict[str, nn.Module], path: str) -> dict[str, float]:
    """Largest singular values of the matrices of the module at ``path``, by SVD in float64.

    They are those of the module and of its children; where it has none, as a module that is only
    the softmax, those of the module around it. Queries, keys and values that are made by one matrix
    are told apart in ``torch.nn.MultiheadAttention`` and in GPT-2; elsewhere their order in it is
    not known, and the norm is that of the whole.
    """
    while path and not any(True for _ in _matrices(modules[path])):
        path = path.rpartition(".")[0]
    return {name: _norm(matrix) for name, matrix in _matrices(modules[path])}


def _matrices(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    own: list[tuple[str, Any]] = list(module.named_parameters(recurse=False))
    for name, child in module.named_children():
        if not isinstance(child, nn.Embedding):  # such as a table of relative positions
            own.append((name, getattr(child, "weight", None)))  # in use, if it is parametrised
    for name, weight in own:
        if isinstance(weight, torch.Tensor) and weight.ndim == 2:
            yield from _thirds(name.removesuffix("_weight"), weight)


def _thirds(name: str, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    rows, columns = weight.shape
    if name == "in_proj" and rows == 3 * columns:
        parts = weight.chunk(3)
    elif name == "c_attn" and columns == 3 * rows:  # inputs first
        parts = weight.chunk(3, dim=1)
    else:
        yield name, weight
        return
    yield from zip(("query", "key", "value"), parts, strict=True)


def _norm(matrix: torch.Tensor) -> float:
    wide = matrix.detach()
    wide = wide.cpu() if wide.device.type == "mps" else wide  # which has no float64
    wide = wide.double()
    if not bool(torch.isfinite(wide).all()):
        return float("nan")
    return float(torch.linalg.svdvals(wide)[0]) if wide.numel() else 0.0
