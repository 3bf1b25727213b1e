"""The experts of a mixture, whose maps are kept as stacks of matrices, one for each expert."""

from __future__ import annotations

from typing import Any

import torch

from taut.models.architectures.linear_map import LinearMap


def expert_maps(module: Any) -> list[dict[str, LinearMap]]:
    """The gate, first and second maps of every expert of a module; empty if it holds none.

    ``gate_up_proj`` (experts, 2·inner, width) has the gate above the first map, and ``down_proj``
    is (experts, width, inner), as in Mixtral and most mixtures of transformers. No stack that is
    kept transposed has these shapes.
    """
    both = getattr(module, "gate_up_proj", None)
    second = getattr(module, "down_proj", None)
    if not isinstance(both, torch.Tensor) or not isinstance(second, torch.Tensor):
        return []
    if both.ndim != 3 or second.ndim != 3 or not getattr(module, "is_concatenated", True):
        return []
    experts, width, inner = second.shape
    if both.shape != (experts, 2 * inner, width):
        return []
    return [
        {
            "gate": LinearMap(both, rows=(0, inner), expert=index),
            "first": LinearMap(both, rows=(inner, 2 * inner), expert=index),
            "second": LinearMap(second, expert=index),
        }
        for index in range(experts)
    ]
