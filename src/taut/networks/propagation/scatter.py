"""Scatter: the error of a node as ellipsoids, so that it keeps how entries depend on each other."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut.networks.propagation.ellipsoid import combined, root, roots
from taut.networks.propagation.rows import Rows


class Scatter(NamedTuple):
    """The error of a node: a joint part of all tokens, and one of each token by itself.

    Attributes
    ----------
    joint
        (tokens·width, tokens·width); None if only that of each token is known.
    single
        (tokens, width, width).
    """

    joint: torch.Tensor | None
    single: torch.Tensor

    def largest(self) -> torch.Tensor:
        """The largest error of each entry, (tokens, width)."""
        found = roots(self.single)
        if self.joint is not None:
            found = found + roots(self.joint).reshape(found.shape)
        return found * (1 + 1e-12)

    def of_rows(self, rows: Rows) -> torch.Tensor:
        """Largest absolute value of each row on the error."""
        assert self.joint is not None
        tokens = len(self.single)
        if rows.token is None:
            flat = rows.values.flatten(1)
            found = root(flat, self.joint)
            for token in range(tokens):
                found = found + root(rows.values[:, token], self.single[token])
            return found
        found = rows.values.new_zeros(len(rows))
        blocks = self.blocks()
        for token in torch.unique(rows.token).tolist():
            here = rows.token == token
            values = rows.values[here, 0]
            found[here] = root(values, blocks[token]) + root(values, self.single[token])
        return found

    def blocks(self) -> torch.Tensor:
        """The joint part of each token alone."""
        assert self.joint is not None
        tokens, width = self.single.shape[:2]
        grid = self.joint.reshape(tokens, width, tokens, width)
        return torch.stack([grid[t, :, t] for t in range(tokens)])

    def by_token(self) -> torch.Tensor:
        """An ellipsoid for each token, (tokens, width, width)."""
        return self.single if self.joint is None else combined([self.blocks(), self.single])
