"""ReplacementSet: all inputs in which tokens are mixtures of given replacements."""

from __future__ import annotations

import torch

from taut.networks.propagation.input_set import InputRows, InputSet
from taut.networks.propagation.rows import Rows


class ReplacementSet(InputSet):
    """Each token moves within the hull of itself and its replacements, independently of others.

    A token is x + Σₖ λₖ(eₖ − x) with λ ≥ 0, Σλ ≤ 1. Linear functions of the input are linear in λ;
    their coefficients are the products of a row with the differences eₖ − x. Over one token the
    largest absolute value is the largest coefficient, over several tokens these add up.

    Parameters
    ----------
    x
        The tokens, (tokens, width).
    replacements
        For some tokens, the vectors that may stand in their place, (many, width).
    """

    def __init__(self, x: torch.Tensor, replacements: dict[int, torch.Tensor]) -> None:
        moves = torch.zeros(len(x), dtype=torch.bool)
        moves[list(replacements)] = True
        scale = torch.where(moves[:, None].to(x.device), torch.ones_like(x), 0.0)
        super().__init__(1.0, float("inf"), scale)
        most = max(len(each) for each in replacements.values())
        self.steps = x.new_zeros(len(x), most, x.shape[1])  # (tokens, replacements, width)
        for token, vectors in replacements.items():
            self.steps[token, : len(vectors)] = vectors - x[token]
        self._lengths = self.steps.norm(dim=-1).amax(dim=-1) * (1 + 1e-9)
        self._many = most
        self.far = (2 * len(replacements)) ** 0.5  # of λ and of a rounding error for each token
        # differences and products are rounded: γ of their size, which a row's length multiplies
        self._doubt = (x.shape[1] + 8) * 4 * 2.0**-52 * (x.norm(dim=-1) + self._lengths)

    @property
    def columns(self) -> int:
        """One number for each replacement, as many for each moving token as there are at most."""
        return int(self.moving.sum()) * (self._many + 1)

    def entries(self, rows: Rows) -> InputRows:
        """Coefficients of λ, and one more for the rounding of each token."""
        if rows.token is not None:
            steps, doubt = self.steps[rows.token], self._doubt[rows.token]
            values = torch.einsum("sw,skw->sk", rows.values[:, 0], steps)
            lost = rows.values[:, 0].norm(dim=-1) * doubt
            return InputRows(torch.cat((values, lost[:, None]), dim=1), rows.token)
        kept = rows.values[:, self.moving]
        values = torch.einsum("stw,tkw->stk", kept, self.steps[self.moving])
        lost = kept.norm(dim=-1) * self._doubt[self.moving]
        return InputRows(torch.cat((values, lost[..., None]), dim=2).flatten(1), None)

    def reach(self, values: torch.Tensor) -> torch.Tensor:
        """The largest coefficient of each token, with its rounding, added up over the tokens."""
        if values.shape[-1] == 0:
            return values.new_zeros(values.shape[:-1])
        parts = values.reshape(*values.shape[:-1], -1, self._many + 1).abs()
        return (parts[..., :-1].amax(dim=-1) + parts[..., -1]).sum(dim=-1) * (1 + 1e-12)

    def square(self, linear: torch.Tensor) -> torch.Tensor:
        """Over each token the longest column, by the triangle inequality over the tokens."""
        if linear.shape[-1] == 0:
            return linear.new_zeros(linear.shape[:-2])
        columns = linear.norm(dim=-2)
        found: torch.Tensor = self.reach(columns).square() * (1 + 1e-9)
        return found

    def sizes(self) -> torch.Tensor:
        """The farthest replacement of each token."""
        found: torch.Tensor = self._lengths + self._doubt
        return found
