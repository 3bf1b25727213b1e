"""Source: the error that one operation adds."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ellipsoid import root
from taut.networks.propagation.node import Pulled
from taut.networks.propagation.rows import Rows


class Source(NamedTuple):
    """The output is its linear part, plus an offset, plus something in an ellipsoid.

    Attributes
    ----------
    offset
        (tokens, width).
    axes, full
        The ellipsoid of each token: squares of its axes (tokens, width), or (tokens, width, width).
    """

    offset: torch.Tensor
    axes: torch.Tensor | None = None
    full: torch.Tensor | None = None

    def error(self, rows: Rows) -> torch.Tensor:
        """How far rows can be from their value at the offset."""
        if self.axes is not None:
            square = (rows.values.square() * rows.of(self.axes)).sum(dim=-1)
            return square.sqrt().sum(dim=-1) * (1 + 1e-9)
        assert self.full is not None
        if rows.token is None:
            parts = [root(rows.values[:, t], c) for t, c in enumerate(self.full)]
            return torch.stack(parts).sum(dim=0)
        found = rows.values.new_zeros(len(rows))
        for token in torch.unique(rows.token).tolist():
            here = rows.token == token
            found[here] = root(rows.values[here, 0], self.full[token])
        return found

    def sharpened(self, rows: Rows, pulled: Pulled) -> Pulled:
        """What both the ellipsoid and a relaxation allow."""
        at, far = rows.on(self.offset), self.error(rows)
        doubt = rows.weighed(self.offset.norm(dim=-1)) * ((self.offset.numel() + 8) * EPS)
        low = torch.maximum(pulled.shift - pulled.error, at - far - doubt)
        high = torch.minimum(pulled.shift + pulled.error, at + far + doubt)
        shift, error = (low + high) / 2, ((high - low) / 2).clamp(min=0.0)
        more = 4 * EPS * (low.abs() + high.abs())
        return Pulled(pulled.rows, shift, error, pulled.rounding + more)
