"""How far linear functions of single tokens move: the contracted radius of theorem affine-rows."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch

from taut._base.matrix_norm import largest_eigenvalues
from taut._base.rounding import EPS
from taut.networks.propagation.input_set import InputRows, InputSet
from taut.networks.propagation.rows import Rows, heads_apart

LIMIT = 4e9  # multiplications that contracting rows with all entries of the input may take


class Entries(NamedTuple):
    """Every entry of a node as a linear function of the input, within an error.

    Attributes
    ----------
    linear
        One row for each entry of each needed token.
    errors
        How far each entry can be from its row, (tokens, width).
    needed
        The tokens that were asked for, (tokens,).
    scatter
        The errors of each token as an ellipsoid, (tokens, width, width), if one is known.
    """

    linear: InputRows
    errors: torch.Tensor
    needed: torch.Tensor
    scatter: torch.Tensor | None = None


class ValueFactors:
    """Radii of a·δ for any a, δ being the deviation of one head of one token.

    Attributes
    ----------
    plain_lengths
        Largest l2 norm of δ by its box, (tokens, heads).
    source
        The one token of the input that each token depends on, (tokens,), −1 for those that do not
        move; None if some depend on several.
    """

    def __init__(self, inputs: InputSet, box: torch.Tensor, entries: Entries, heads: int) -> None:
        tokens, width = box.shape
        self.inputs, self.heads = inputs, heads
        self.box = heads_apart(box, heads)
        self.errors = heads_apart(entries.errors, heads)
        self.scatter = None if entries.scatter is None else head_blocks(entries.scatter, heads)
        values, self.source = entries.linear.values, None
        index = entries.needed.nonzero()[:, 0]
        if entries.linear.token is not None:
            self.source = torch.full((tokens,), -1, device=box.device)
            self.source[index] = entries.linear.token.reshape(-1, width)[:, 0]
        linear = values.new_zeros(tokens, heads, width // heads, values.shape[-1])
        linear[index] = values.reshape(len(index), heads, width // heads, -1)
        if self.source is not None:  # what does not move depends on nothing
            self.source[linear.flatten(1).abs().amax(dim=1) == 0] = -1
        self.plain_lengths = self.box.norm(dim=-1) * (1 + 1e-9)
        self.linear: torch.Tensor = linear
        if inputs.norm == 2 and linear.shape[-1] > linear.shape[-2]:
            self._shorten(index)

    def _shorten(self, index: torch.Tensor) -> None:
        """In l2: a square factor of each Gram matrix gives the same lengths.

        Gram matrix and factorisation err by γ of the trace; the ridge is larger, so that the
        factor never shortens a row.
        """
        part = self.linear[index]
        gram, ridge = _gram(part)
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        factor, failed = torch.linalg.cholesky_ex(gram + ridge[..., None, None] * eye)
        if not bool(failed.any()):
            square = self.linear.new_zeros(*self.linear.shape[:-1], gram.shape[-1])
            square[index] = factor
            self.linear = square

    @cached_property
    def lengths(self) -> torch.Tensor:
        """Largest l2 norm of δ, (tokens, heads), for all entries together."""
        plain: torch.Tensor = self.plain_lengths
        if not bool(plain.any()):
            return plain
        square = self.inputs.square(self.linear)
        error = self.errors.norm(dim=-1) * (1 + 1e-9)
        if self.scatter is not None:
            size = self.scatter.shape[-1]
            flat = self.scatter.reshape(-1, size, size).cpu().numpy()
            top = torch.from_numpy(largest_eigenvalues(flat)).to(error).reshape(error.shape)
            error = torch.minimum(error, top.sqrt() * (1 + 1e-9))
        far = square.sqrt() * (1 + 1e-9) + error
        return torch.minimum(plain, far)

    def affordable(self, rows: int) -> bool:
        """Whether so many rows can be contracted."""
        return rows * self.linear.numel() < LIMIT

    def reach(self, a: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Bound |a·δ| on each token and head, (rows, tokens or 1, heads)."""
        plain = (a.abs() * rows.of(self.box)).sum(dim=-1)
        short = a.norm(dim=-1) * rows.of(self.plain_lengths)
        found = torch.minimum(plain, short)
        if self.affordable(len(a) if rows.token is None else -(-len(a) // len(self.box))):
            if rows.token is None:
                moved = torch.einsum("sthw,thwk->sthk", a, self.linear)
            else:
                moved = _by_token(a, self.linear, rows.token)
            far = self.inputs.reach(moved) + (a.abs() * rows.of(self.errors)).sum(dim=-1)
            doubt = short * ((a.shape[-1] + 8) * 4 * EPS)
            found = torch.minimum(found, far * (1 + 1e-9) + doubt)
        return found * (1 + 1e-9)


def head_blocks(c: torch.Tensor, heads: int) -> torch.Tensor:
    """The blocks of each head, (tokens, heads, width, width)."""
    tokens, size = c.shape[0], c.shape[1] // heads
    grid = c.reshape(tokens, heads, size, heads, size)
    return torch.stack([grid[:, h, :, h] for h in range(heads)], dim=1)


def _gram(linear: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gram matrices, and more than they and their factorisations can be off."""
    gram = linear @ linear.mT
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return gram, (linear.shape[-1] + 4 * linear.shape[-2] + 32) * 4 * EPS * trace + 1e-280


def _by_token(a: torch.Tensor, linear: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """a·F of the token that each row reads; rows of one token are multiplied together."""
    found = a.new_zeros(len(a), 1, a.shape[2], linear.shape[-1])
    for each in torch.unique(token).tolist():
        here = token == each
        found[here, 0] = torch.einsum("shw,hwk->shk", a[here, 0], linear[each])
    return found
