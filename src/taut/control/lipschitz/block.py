"""LipschitzBlock: attention and a feed-forward network, each averaged with its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from taut.control.lipschitz.activation import ACTIVATIONS
from taut.control.lipschitz.attention import BoundedAttention
from taut.control.lipschitz.budget import Budget


class LipschitzBlock(nn.Module):
    """x ← (1 − s)x + s·f(x) for attention and then for a feed-forward network, both 1-Lipschitz.

    The shares s are learnt, between 0 and 1. For any of them the block is 1-Lipschitz in the
    largest token and leaves no token longer than the longest was.
    """

    def __init__(
        self, attention: BoundedAttention, hidden: int, activation: str, budget: Budget
    ) -> None:
        super().__init__()
        width = attention.width
        self.attention = attention
        self.first = nn.Parameter(torch.empty(hidden, width))
        self.second = nn.Parameter(torch.empty(width, hidden))
        self.activation = ACTIVATIONS[activation]()
        self.attention_factor, self.mlp_factor = budget.attention, budget.mlp
        self.attention_share = nn.Parameter(torch.tensor(0.5))
        self.mlp_share = nn.Parameter(torch.tensor(0.3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal maps at their limits, so that the hidden units are as large as the tokens."""
        grow = (self.first.shape[0] / self.first.shape[1]) ** 0.5
        for weight, gain in ((self.first, grow), (self.second, 1 / grow)):
            nn.init.orthogonal_(weight, gain=gain)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, tokens, width)."""
        s = self.attention_share
        x = (1 - s) * x + s * self.attention_factor * self.attention(x)
        s = self.mlp_share
        hidden = self.activation(nn.functional.linear(x, self.first))
        return (1 - s) * x + s * self.mlp_factor * nn.functional.linear(hidden, self.second)
