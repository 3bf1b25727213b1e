"""InputSet: the inputs that a bound holds for, and how far a linear function moves on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from taut.networks.propagation.rows import Rows


@dataclass(frozen=True)
class InputRows:
    """Linear functions of the input in units of the set: coefficients times scale and radius.

    Attributes
    ----------
    values
        (rows, entries); only those of one token if ``token`` says which.
    token
        The one token that each row reads, (rows,), or None.
    """

    values: torch.Tensor
    token: torch.Tensor | None


class InputSet:
    """All inputs x with ‖(x − centre)/scale‖_p ≤ radius; entries of scale 0 are fixed.

    Parameters
    ----------
    radius
        Its size.
    norm
        The exponent p: 1, 2 or infinity.
    scale
        One number ≥ 0 for each entry, (tokens, width).
    """

    def __init__(self, radius: float, norm: float, scale: torch.Tensor) -> None:
        self.radius, self.norm = radius, norm
        self.scale = scale * radius
        self.moving = self.scale.amax(dim=-1) > 0  # tokens
        # Rounding of the scaled coefficients and of a sum over all entries, twice over.
        self._enlarge = 1 + (scale.numel() + 16) * 2.0**-52

    def entries(self, rows: Rows) -> InputRows:
        """The rows in units of the set, without tokens that are fixed."""
        if rows.token is not None:
            return InputRows((rows.values[:, 0] * self.scale[rows.token]), rows.token)
        kept = rows.values[:, self.moving] * self.scale[self.moving]
        return InputRows(kept.flatten(1), None)

    def reach(self, values: torch.Tensor) -> torch.Tensor:
        """Largest absolute value of functions with these coefficients, in units of the set."""
        if values.shape[-1] == 0:
            return values.new_zeros(values.shape[:-1])
        if self.norm == 2:
            found = values.norm(dim=-1)
        elif self.norm == 1:
            found = values.abs().amax(dim=-1)
        else:
            found = values.abs().sum(dim=-1)
        return found * self._enlarge

    def sizes(self) -> torch.Tensor:
        """How far each token can move in l2."""
        if self.norm == 2 or self.norm == 1:
            found = self.scale.amax(dim=-1)
        else:
            found = self.scale.norm(dim=-1)
        return found * self._enlarge
