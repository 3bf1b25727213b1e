"""Source: the error that one operation adds."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ellipsoid import root
from taut.networks.propagation.linear_nodes import LinearNode
from taut.networks.propagation.node import Pulled
from taut.networks.propagation.rows import Rows


class Source(NamedTuple):
    """An output is its linear part, plus an offset, plus something in an ellipsoid.

    Attributes
    ----------
    offset
        (tokens, width).
    axes, full
        The ellipsoid of each token: squares of its axes (tokens, width), or (tokens, width, width).
    doubt
        How much rounding of the offset adds to each token, in l2.
    """

    offset: torch.Tensor
    axes: torch.Tensor | None = None
    full: torch.Tensor | None = None
    doubt: torch.Tensor | None = None

    def moved(self, reader: LinearNode) -> Source:
        """The offset behind a linear map, whose ellipsoid this is already."""
        terms = (reader.weight.shape[1] + 8) * EPS
        doubt = self.offset.norm(dim=-1) * (float(reader.weight.norm()) * terms)
        return self._replace(offset=self.offset @ reader.weight.mT, doubt=doubt)

    def interval(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What is added to each row: around which number, how far, and the number's rounding."""
        size = self.offset.norm(dim=-1) * ((self.offset.numel() + 8) * EPS)
        doubt = size if self.doubt is None else size + self.doubt
        return rows.on(self.offset), self._error(rows), rows.weighed(doubt)

    def _error(self, rows: Rows) -> torch.Tensor:
        if self.axes is not None:
            square = (rows.values.square() * rows.of(self.axes)).sum(dim=-1)
            found: torch.Tensor = square.sqrt().sum(dim=-1) * (1 + 1e-9)
            return found
        assert self.full is not None
        if rows.token is None:
            return torch.stack([
                root(rows.values[:, token], full) for token, full in enumerate(self.full)
            ]).sum(dim=0)  # fmt: skip
        found = rows.values.new_zeros(len(rows))
        for token in torch.unique(rows.token).tolist():
            here = rows.token == token
            found[here] = root(rows.values[here, 0], self.full[token])
        return found


def sharpened(pulled: Pulled, around: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Pulled:
    """What both a relaxation and an ellipsoid allow."""
    at, far, doubt = around
    shift, error = (torch.as_tensor(each).to(at) for each in (pulled.shift, pulled.error))
    low = torch.maximum(shift - error, at - far - doubt)
    high = torch.minimum(shift + error, at + far + doubt)
    shift, error = (low + high) / 2, ((high - low) / 2).clamp(min=0.0)
    more = 4 * EPS * (low.abs() + high.abs())
    return Pulled(pulled.rows, shift, error, pulled.rounding + more)
