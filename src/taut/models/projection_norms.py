"""Spectral norms of the projections of an attention module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from taut.models.architectures.linear_map import linear_map
from taut.models.architectures.registry import find_attention


def projection_norms(modules: Mapping[str, nn.Module], path: str) -> dict[str, float]:
    """Largest singular values of the matrices of the module at ``path``, by SVD in float64.

    These are the matrices of the module and its children, or of the module around it if it has
    none (some modules hold only the softmax). Queries, keys and values that are fused in a known
    order are told apart; otherwise the norm is that of the fused matrix.
    """
    while path and not any(True for _ in _matrices(modules[path])):
        path = path.rpartition(".")[0]
    return {name: _norm(matrix) for name, matrix in _matrices(modules[path])}


def _matrices(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    own: dict[str, Any] = dict(module.named_parameters(recurse=False))
    for name, child in module.named_children():
        if not isinstance(child, nn.Embedding):  # such as a table of relative positions
            own[name] = child
    fused = _thirds(module)
    for name, holder in own.items():
        found = linear_map(holder)
        if found is None:
            continue
        if id(holder) in fused:
            yield from fused[id(holder)].items()
        else:
            yield name.removesuffix("_weight"), found.weight


def _thirds(module: nn.Module) -> dict[int, dict[str, torch.Tensor]]:
    """Queries, keys and values by what holds all three of them."""
    attention = find_attention(module)
    found: dict[int, dict[str, torch.Tensor]] = {}
    for role, each in {} if attention is None else attention.maps.items():
        if each.rows is not None:
            found.setdefault(id(each.module or each.kept_weight), {})[role] = each.weight
    return {holder: parts for holder, parts in found.items() if len(parts) == 3}


def _norm(matrix: torch.Tensor) -> float:
    wide = matrix.detach()
    wide = wide.cpu() if wide.device.type == "mps" else wide  # MPS has no float64
    wide = wide.double()
    if not bool(torch.isfinite(wide).all()):
        return float("nan")
    return float(torch.linalg.svdvals(wide)[0]) if wide.numel() else 0.0
