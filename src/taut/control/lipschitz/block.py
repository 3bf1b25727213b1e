"""LipschitzBlock: attention and a feed-forward network, each averaged with its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from taut.control.lipschitz.activation import ACTIVATIONS
from taut.control.lipschitz.attention import BoundedAttention
from taut.control.lipschitz.budget import Budget
from taut.control.lipschitz.embedding import TokenBall
from taut.control.lipschitz.norm import NormKind, norm_layer


class LipschitzBlock(nn.Module):
    """x ← (1 − s)x + s·f(Nx) for attention and then for a feed-forward network, both 1-Lipschitz.

    N is a norm layer that is 1-Lipschitz as well, or nothing.

    The shares s are learnt, between 0 and 1. For any of them the block is 1-Lipschitz in the
    largest token and leaves no token longer than the longest was. Where attention has numbers for
    pairs of places, the same holds in l2.
    """

    def __init__(
        self,
        attention: BoundedAttention,
        hidden: int,
        activation: str,
        budget: Budget,
        *,
        reach: float,
        norm: NormKind | None = None,
    ) -> None:
        super().__init__()
        width = attention.width
        self.attention = attention
        self.norm = norm_layer(norm, width)
        self.first = nn.Parameter(torch.empty(hidden, width))
        self.second = nn.Parameter(torch.empty(width, hidden))
        # In l2, heads that look at different tokens can join their longest parts into a token that
        # is longer, which the factor does not allow for. The ball does, and so pays for biases.
        self.ball = TokenBall(reach) if attention.places else None
        self.bias = nn.Parameter(torch.zeros(hidden)) if attention.places else None
        self.activation = ACTIVATIONS[activation]()
        self.fixed_factor, self.mlp_factor = budget.attention, budget.mlp
        # Averages shorten what differs from its input. In l2, where attention and feed-forward
        # networks can keep all lengths, they begin alone.
        shares = (1.0, 1.0) if attention.places else (0.5, 0.3)
        self.attention_share, self.mlp_share = (nn.Parameter(torch.tensor(s)) for s in shares)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal maps at their limits, so that the hidden units are as large as the tokens."""
        grow = (self.first.shape[0] / self.first.shape[1]) ** 0.5
        for weight, gain in ((self.first, grow), (self.second, 1 / grow)):
            nn.init.orthogonal_(weight, gain=gain)

    @property
    def attention_factor(self) -> float | Tensor:
        """What makes attention 1-Lipschitz: that of the budget, or one over its constant in l2."""
        return 1 / self.attention.l2_constant() if self.attention.places else self.fixed_factor

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, tokens, width)."""
        s = self.attention_share
        x = (1 - s) * x + s * self.attention_factor * self.attention(self.norm(x))
        s = self.mlp_share
        hidden = self.activation(nn.functional.linear(self.norm(x), self.first, self.bias))
        x = (1 - s) * x + s * self.mlp_factor * nn.functional.linear(hidden, self.second)
        return x if self.ball is None else self.ball(x)
