"""Weights as matrices (out, in), however a model keeps them: turned, fused, stacked, sharded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn


class Weight(NamedTuple):
    """A matrix of a model, or its part of a matrix that holds several."""

    name: str  # the name of the parameter in the model
    parameter: nn.Parameter
    transposed: bool = False  # kept as (in, out), as GPT-2 does
    rows: tuple[int, int] | None = None  # its part of a fused matrix (out, in)
    bias: nn.Parameter | None = None
    bias_rows: tuple[int, int] | None = None  # where only the biases are fused
    expert: int | None = None  # its place in a stack of matrices, as experts are kept

    def matrix(self) -> torch.Tensor:
        """The matrix (out, in), whole on every process, with its gradient."""
        return self._part(whole(self.parameter))

    def add_product(self, left: torch.Tensor, right: torch.Tensor, scale: float) -> None:
        """Add a product of matrices, scaled, to the gradient of the matrix."""
        parameter = self.parameter
        if not parameter.requires_grad:
            return
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if hasattr(parameter, "full_tensor"):
            full = torch.zeros(parameter.shape, dtype=left.dtype, device=left.device)
            self._part(full).addmm_(left, right, alpha=scale)
            parameter.grad += like_shards(full.to(parameter.dtype), parameter)
        else:
            part = self._part(parameter.grad)
            if part.dtype == left.dtype:
                part.addmm_(left, right, alpha=scale)
            else:
                part.add_((scale * (left @ right)).to(part.dtype))

    @torch.no_grad()
    def replace(self, matrix: torch.Tensor) -> None:
        """Replace the matrix; matrices that are fused with it stay as they are."""
        if not hasattr(self.parameter, "full_tensor"):
            self._part(self.parameter).copy_(matrix)
            return
        full = whole(self.parameter).detach().clone()
        self._part(full).copy_(matrix)
        self.parameter.copy_(like_shards(full, self.parameter))

    @torch.no_grad()
    def scale_rows(self, factors: torch.Tensor) -> None:
        """Multiply every row, and the same entry of the bias, by a factor."""
        self.replace(self.matrix() * factors[:, None].to(self.parameter.dtype))
        if self.bias is not None:
            full = whole(self.bias).detach().clone()
            rows = self.bias_rows or self.rows
            own = full if self.expert is None else full[self.expert]
            part = own if rows is None else own[slice(*rows)]
            part.mul_(factors.to(full.dtype))
            self.bias.copy_(like_shards(full, self.bias))

    def _part(self, full: torch.Tensor) -> torch.Tensor:
        own = full if self.expert is None else full[self.expert]
        found = own.mT if self.transposed else own
        return found if self.rows is None else found[slice(*self.rows)]

    def __str__(self) -> str:
        index = [] if self.expert is None else [str(self.expert)]
        rows = [] if self.rows is None else [f"{self.rows[0]}:{self.rows[1]}"]
        part = ", ".join([*index, *rows])
        return f"{self.name}[{part}]" if part else self.name


def whole(parameter: torch.Tensor) -> torch.Tensor:
    """The whole parameter on every process, gathered from its shards if it has any."""
    gather = getattr(parameter, "full_tensor", None)
    return parameter if gather is None else gather()


def like_shards(full: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Shard a whole tensor like a parameter."""
    if not hasattr(parameter, "full_tensor"):
        return full
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(parameter, DTensor)
    return distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None)


def joined_weights(weights: Iterable[Weight]) -> list[Weight]:
    """The same weights, with adjacent parts of one matrix joined, which saves products."""
    found: list[Weight] = []
    for weight in weights:
        last = found[-1] if found else None
        if (
            last is not None
            and last.parameter is weight.parameter
            and last.expert == weight.expert
            and last.rows is not None
            and weight.rows is not None
            and last.rows[1] == weight.rows[0]
        ):
            found[-1] = last._replace(rows=(last.rows[0], weight.rows[1]))
        else:
            found.append(weight)
    return found
