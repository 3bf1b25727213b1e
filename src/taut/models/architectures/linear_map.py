"""A linear map of a model, however its weight is kept: transposed, fused, or as a bare matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

Rows = tuple[int, int]


class LinearMap(NamedTuple):
    """``y = Wx + b`` where W and b are parts of what a model keeps."""

    kept_weight: torch.Tensor
    kept_bias: torch.Tensor | None = None
    transposed: bool = False  # kept as (in, out), as Conv1D does
    rows: Rows | None = None  # of the matrix (out, in), where several are fused
    bias_rows: Rows | None = None  # where only the biases are fused
    module: nn.Module | None = None  # what computes it; None for a bare matrix
    expert: int | None = None  # its place in a stack of matrices

    @property
    def weight(self) -> torch.Tensor:
        """The matrix (out, in)."""
        own = self.kept_weight if self.expert is None else self.kept_weight[self.expert]
        matrix = own.mT if self.transposed else own
        return matrix if self.rows is None else matrix[slice(*self.rows)]

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias, if there is one."""
        rows = self.bias_rows or self.rows
        if self.kept_bias is None or rows is None:
            return self.kept_bias
        return self.kept_bias[slice(*rows)]


def linear_map(found: Any, bias: torch.Tensor | None = None) -> LinearMap | None:
    """The map of a linear module or of a bare matrix; None if it is neither."""
    if isinstance(found, torch.Tensor):
        return LinearMap(found, bias) if found.ndim == 2 else None
    weight = getattr(found, "weight", None)
    if not isinstance(found, nn.Module) or getattr(weight, "ndim", 0) != 2:
        return None
    assert isinstance(weight, torch.Tensor)
    # a parametrised module is of a class of its own
    kind = type_before_parametrizations(found)
    transposed = kind.__name__ == "Conv1D"
    return LinearMap(weight, getattr(found, "bias", None), transposed, module=found)


def at_path(module: Any, path: str, parent: Any = None) -> Any:
    """What is at a path of names, which may start at the module around (``..``); None if nothing.

    Numbers count the modules of a list.
    """
    found = parent if path.startswith("..") else module
    for name in path.removeprefix("..").split("."):
        found = getattr(found, name, None)
    return found
