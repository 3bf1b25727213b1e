"""BoundedAttention: attention whose scores have a limit on all tokens of bounded length."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from taut.control.lipschitz.budget import AttentionKind, attention_costs

FIRST_SCORE = 6.0  # of the neighbour that a head begins with; the others have 0
EPSILON = 1.0  # of cosine attention, beside the mean square of a query


class BoundedAttention(nn.Module):
    """Multi-head attention without biases, which learns where to look by position for free.

    Scores are the part that depends on the tokens, at most ``sharpness`` in size, plus a learnt
    number for each head and distance. The latter does not depend on the input: whatever it is, it
    adds nothing to the constant in the largest token (theorem attn-heads-token).

    Parameters
    ----------
    width, heads
        Width of tokens, number of heads.
    reach
        Length that no token exceeds.
    sharpness
        Largest score, for weights of spectral norm at most 1.
    tokens
        Largest number of tokens.
    causal
        Whether tokens see only those before them.
    kind
        ``"dot_product"``; ``"cosine"``, which divides queries and keys by their lengths; or
        ``"l2"``, whose scores fall with the squared distance of two queries (Kim et al. 2021) from
        0 to −2·sharpness: queries are also keys and values, and there are no maps of these.
    places
        Whether the learnt number is one for each pair of places rather than for each distance, as
        suits images. The output is then divided by what the constant in l2 can be with these
        numbers (:meth:`l2_constant`), which training therefore keeps small by itself.
    """

    query: nn.Parameter
    key: nn.Parameter  # not of kind "l2", nor is the value
    value: nn.Parameter
    output: nn.Parameter
    distances: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        reach: float,
        sharpness: float,
        tokens: int,
        causal: bool,
        kind: AttentionKind = "dot_product",
        places: bool = False,
    ) -> None:
        super().__init__()
        self.reach, self.sharpness, self.places = reach, sharpness, places
        self.width, self.heads, self.causal, self.kind = width, heads, causal, kind
        self.head_width = width // heads
        # Queries and keys are at most ``reach`` long, those of cosines 1; −|q − k|²/2 is ⟨q, k⟩
        # apart from their lengths.
        each = {"dot_product": 1 / reach**2, "cosine": 1.0, "l2": 0.5 / reach**2}
        self.scale = sharpness * each[kind]
        for name in self.names:
            setattr(self, name, nn.Parameter(torch.empty(width, width)))
        # Distances i − j from 0 on, or from 1 − tokens on where tokens see those after them.
        many = tokens * tokens if places else tokens if causal else 2 * tokens - 1
        self.position = nn.Parameter(torch.empty(heads, many))
        where = torch.arange(many).view(tokens, tokens) if places else _distances(tokens, causal)
        self.register_buffer("distances", where, persistent=False)
        self.reset_parameters()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its maps."""
        if self.kind == "l2":
            return ("query", "output")
        return ("query", "key", "value", "output")

    def reset_parameters(self) -> None:
        """Orthogonal maps; each head begins with a span of its own, from short to long.

        With numbers for each pair of places, each head begins with a neighbour of its own, at the
        same distance for all tokens and around the edges: no token is then seen by many.
        """
        for name in self.names:
            nn.init.orthogonal_(getattr(self, name))
        if self.places:
            with torch.no_grad():
                self.position.copy_(_neighbours(self.heads, len(self.distances)).flatten(1))
            return
        apart = torch.arange(self.position.shape[1], dtype=self.position.dtype)
        if not self.causal:
            apart = (apart - self.position.shape[1] // 2).abs()
        slopes = 4.0 ** -torch.arange(self.heads, dtype=self.position.dtype)
        with torch.no_grad():
            self.position.copy_(-slopes[:, None] * apart if self.causal else 0 * apart)

    def positions(self, tokens: int) -> Tensor:
        """What is added to the scores of so many tokens, (heads, tokens, tokens)."""
        return self.position[:, self.distances[:tokens, :tokens]]

    def visible(self, tokens: int) -> Tensor | None:
        """True where a query (row) sees a key (column); None if all see all."""
        if not self.causal:
            return None
        return torch.ones(tokens, tokens, dtype=torch.bool, device=self.position.device).tril()

    def l2_constant(self) -> Tensor:
        """√k·keys + queries, the constant in l2 with all maps at their limits.

        k is the largest sum of a column of weights when the scores of tokens range over 2c, c being
        the sharpness; :func:`attention_costs` has the rest. The number is computed in the
        arithmetic of training: certificates do not rely on it, but find the constant themselves.
        """
        tokens, c = len(self.distances), self.sharpness
        keys, queries = attention_costs(self.kind, self.heads, c, in_tokens=False)
        term = self.positions(tokens)
        visible = self.visible(tokens)
        if visible is not None:
            term = term.masked_fill(~visible, -math.inf)
        weights = torch.softmax(term, dim=-1)
        # e^b/(e^b + e^{−2c}·others), with weights in place of e^b
        most = weights / (weights + math.exp(-2 * c) * (1 - weights))
        return most.sum(dim=1).max().sqrt() * keys + queries

    def forward(self, x: Tensor) -> Tensor:
        """Attention of tokens (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        parts = [
            nn.functional.linear(x, getattr(self, name))
            .reshape(batch, tokens, self.heads, -1)
            .transpose(1, 2)
            for name in self.names[:-1]
        ]
        q, k, v = parts if len(parts) == 3 else 3 * parts
        if self.kind == "cosine":
            q, k = (unit_length(part) for part in (q, k))
        term = self.positions(tokens)
        visible = self.visible(tokens)
        if visible is not None:
            term = term.masked_fill(~visible, -math.inf)
        alike = q @ k.mT
        if self.kind == "l2":  # −|q − k|² apart from |q|², which is the same for all keys
            alike = 2 * alike - k.square().sum(dim=-1)[..., None, :]
        weights = torch.softmax(self.scale * alike + term, dim=-1).to(v.dtype)
        seen = (weights @ v).transpose(1, 2).reshape(batch, tokens, self.width)
        return nn.functional.linear(seen, self.output)

    def extra_repr(self) -> str:
        """What it was made with."""
        return f"{self.width}, {self.heads}, scale={self.scale:g}, {self.kind}"


def unit_length(x: Tensor) -> Tensor:
    """x/√(|x|² + width·EPSILON): RMSNorm with gain 1/√width."""
    width = x.shape[-1]
    wide = x if x.dtype == torch.float64 else x.float()
    mean = wide.square().mean(dim=-1, keepdim=True)
    found: Tensor = wide * torch.rsqrt(mean + EPSILON) * width**-0.5
    return found.to(x.dtype)


def _distances(tokens: int, causal: bool) -> Tensor:
    """Places in the table of positions, (queries, keys); those of keys behind a mask are 0."""
    index = torch.arange(tokens)
    apart = index[:, None] - index
    return apart.clamp(min=0) if causal else apart + tokens - 1


def _neighbours(heads: int, tokens: int) -> Tensor:
    """Scores (heads, queries, keys) that lead each head to one neighbour on a square of tokens."""
    side = math.isqrt(tokens)
    across = side if side * side == tokens else tokens  # other numbers of tokens stand in a line
    row, column = torch.arange(tokens) // across, torch.arange(tokens) % across
    reach = math.ceil(math.sqrt(heads))
    scores = torch.zeros(heads, tokens, tokens)
    for head in range(heads):
        down, right = divmod(head, reach)
        to = (row + down) % max(tokens // across, 1) * across + (column + right) % across
        scores[head, torch.arange(tokens), to] = FIRST_SCORE
    return scores
