"""Rotary positions: a linear operation that turns pairs of coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.node import Node, Pulled
from taut.networks.propagation.rows import Rows, heads_apart

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class RotaryNode(Node):
    """Rotary positions of every head: x∘cos + R(x)∘sin on the first coordinates of each."""

    def __init__(self, x: Node, heads: int, cosine: torch.Tensor, sine: torch.Tensor) -> None:
        self.heads = heads
        self.cosine, self.sine = cosine[: x.tokens], sine[: x.tokens]
        super().__init__(x)
        self._stretch = max(1.0, _largest_turn(self.cosine, self.sine))

    def value(self) -> torch.Tensor:
        """Every head turned."""
        return self._turned(self.parents[0].centre, self.cosine, self.sine, 1.0)

    def _turned(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, sign: float
    ) -> torch.Tensor:
        """Forward (sign 1), or its transpose (−1) with the sines before the exchange."""
        x = heads_apart(x, self.heads)
        cosine, sine = cosine.unsqueeze(-2), sine.unsqueeze(-2)
        part, rest = x[..., : cosine.shape[-1]], x[..., cosine.shape[-1] :]
        second = part if sign > 0 else part * sine
        left, right = second.chunk(2, dim=-1)
        swapped = torch.cat((-sign * right, sign * left), dim=-1)
        turned = part * cosine + (swapped * sine if sign > 0 else swapped)
        return torch.cat((turned, rest), dim=-1).flatten(-2)

    def prepare(self, engine: Engine) -> None:
        """Two products and a sum for every entry."""
        (x,) = self.parents
        self.sizes = self.grown(x.sizes)
        self.local = engine.unit * 4 * self._stretch * x.longest

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """Every step turned."""
        return self._turned(steps[0], self.cosine, self.sine, 1.0)

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """By how much the rotation stretches."""
        return self._stretch * sizes[0]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The transposed rotation."""
        values = self._turned(rows.values, rows.of(self.cosine), rows.of(self.sine), -1.0)
        return Pulled((rows.but(values),), rounding=4 * EPS * rows.weighed(self.sizes))


def _largest_turn(cosine: torch.Tensor, sine: torch.Tensor) -> float:
    """Largest norm of the maps (a, b) to (ac − bs, bc' + as') of all pairs of coordinates.

    The squares of the singular values are the roots of t² − (u + v)t + uv − w², u and v being the
    squared lengths of both columns and w their product. Equal halves give √(c² + s²).
    """
    (c, other), (s, last) = cosine.chunk(2, dim=-1), sine.chunk(2, dim=-1)
    u, v, w = c.square() + last.square(), s.square() + other.square(), other * last - c * s
    square = (u + v + torch.hypot(u - v, 2 * w)) / 2
    return float(square.max().sqrt()) * (1 + 1e-12)
