"""Rows: linear functions of the tokens at some place of a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rows:
    """Several linear functions of tokens.

    Attributes
    ----------
    values
        Their coefficients, (rows, tokens, width); (rows, 1, width) if each reads one token only.
    token
        The one token that each row reads, (rows,); None if they read all.
    """

    values: torch.Tensor
    token: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, begin: int, end: int) -> Rows:
        """Some of the rows."""
        token = None if self.token is None else self.token[begin:end]
        return Rows(self.values[begin:end], token)

    def of(self, data: torch.Tensor) -> torch.Tensor:
        """Data of every token, (tokens, ...), laid beside the coefficients."""
        return data[None] if self.token is None else data[self.token][:, None]

    def but(self, values: torch.Tensor) -> Rows:
        """Other coefficients on the same tokens."""
        return Rows(values, self.token)

    def dense(self, tokens: int) -> torch.Tensor:
        """The coefficients on all tokens."""
        if self.token is None:
            return self.values
        found = self.values.new_zeros(len(self), tokens, self.values.shape[-1])
        found[torch.arange(len(self)), self.token] = self.values[:, 0]
        return found

    def plus(self, other: Rows, tokens: int) -> Rows:
        """The sum of two sets of rows."""
        if self.token is not None and other.token is not None:
            if torch.equal(self.token, other.token):
                return self.but(self.values + other.values)
        elif self.token is None and other.token is None:
            return Rows(self.values + other.values)
        single, full = (self, other) if other.token is None else (other, self)
        found = full.dense(tokens)
        found = found.clone() if full.token is None else found
        assert single.token is not None
        found[torch.arange(len(single)), single.token] += single.values[:, 0]
        return Rows(found)

    def on(self, values: torch.Tensor) -> torch.Tensor:
        """The value of each row at given tokens (tokens, width)."""
        return (self.values * self.of(values)).flatten(1).sum(dim=1)

    def lengths(self) -> torch.Tensor:
        """l2 norm of the coefficients on each token, (rows, tokens or 1), a little from above."""
        found: torch.Tensor = self.values.norm(dim=-1) * (1 + 1e-12)
        return found

    def weighed(self, sizes: torch.Tensor) -> torch.Tensor:
        """Largest value where no token is longer than ``sizes``, (tokens,)."""
        return (self.lengths() * self.of(sizes)).sum(dim=1)


def heads_apart(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(..., heads·width) as (..., heads, width)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def unit_rows(width: int, tokens: torch.Tensor, like: torch.Tensor) -> Rows:
    """Rows that read one coordinate each, of the given tokens, token by token."""
    eye = torch.eye(width, dtype=like.dtype, device=like.device)
    return Rows(eye.repeat(len(tokens), 1)[:, None], tokens.repeat_interleave(width))
