"""Activations that a Lipschitz transformer may use, each a module of torch or of taut."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class MaxMin(nn.Module):
    """Sort the entries in pairs: GroupSort with groups of two (Anil, Lucas and Grosse 2019).

    It keeps the length of every token and of every gradient, so that depth costs nothing.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The larger ones of all pairs, then the smaller ones."""
        if x.shape[-1] % 2:
            raise ValueError(f"MaxMin takes an even width, got {x.shape[-1]}")
        left, right = x.chunk(2, dim=-1)
        return torch.cat((torch.maximum(left, right), torch.minimum(left, right)), dim=-1)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "maxmin": MaxMin,
}
