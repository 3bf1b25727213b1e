"""InputSet: the inputs that a bound holds for, and how far a linear function moves on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from taut._base.matrix_norm import largest_eigenvalues
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
        # of a point of the set, in units of the set: the l2 norm at most
        self.far = float((self.scale > 0).sum()) ** 0.5 if norm == float("inf") else 1.0
        # Rounding of the scaled coefficients and of a sum over all entries, twice over.
        self._enlarge = 1 + (scale.numel() + 16) * 2.0**-52

    @property
    def columns(self) -> int:
        """How many numbers :meth:`entries` makes of a row that reads all tokens."""
        return int(self.moving.sum()) * self.scale.shape[-1]

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
        found: torch.Tensor
        if self.norm == 2:
            found = values.norm(dim=-1)
        elif self.norm == 1:
            found = values.abs().amax(dim=-1)
        else:
            # without a copy of the absolute values, which took most of the time
            found = torch.linalg.vector_norm(values, ord=1, dim=-1)
        return found * self._enlarge

    def holds(self, far: torch.Tensor) -> torch.Tensor:
        """Which deviations from the centre, (many, tokens, width), surely lie in the set."""
        fixed = self.scale == 0
        still = ((far == 0) | ~fixed).flatten(1).all(dim=1)
        share = torch.where(fixed, 0.0, far / torch.where(fixed, 1.0, self.scale)).flatten(1)
        size = torch.linalg.vector_norm(share, ord=self.norm, dim=1)
        inside: torch.Tensor = still & (size * self._enlarge <= 1)
        return inside

    def corners(self, values: torch.Tensor) -> torch.Tensor:
        """Deviations, (functions, tokens, width), where functions with such coefficients are least.

        The coefficients are in units of the set, (functions, entries of moving tokens).
        """
        if self.norm == 2:
            best = -values / values.norm(dim=-1, keepdim=True).clamp(min=1e-300)
        elif self.norm == 1:
            top = values.abs().argmax(dim=-1, keepdim=True)
            best = torch.zeros_like(values).scatter(1, top, -values.gather(1, top).sign())
        else:
            best = -values.sign()
        found = self.scale.new_zeros(len(values), *self.scale.shape)
        found[:, self.moving] = best.reshape(len(values), -1, self.scale.shape[1])
        return found * self.scale * (1 - 1e-6)

    def square(self, linear: torch.Tensor) -> torch.Tensor:
        """Largest sum of squares of functions (..., functions, entries) in units of the set.

        In l1 it is attained at a corner: a column. Otherwise it is at most the largest eigenvalue
        of the Gram matrix, times the square of the l2 norm of a point.
        """
        if linear.shape[-1] == 0:
            return linear.new_zeros(linear.shape[:-2])
        if self.norm == 1:
            return linear.square().sum(dim=-2).amax(dim=-1) * (1 + 1e-9)
        size = linear.shape[-2]
        gram = linear @ linear.mT
        trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        if not bool(trace.isfinite().all()):
            return torch.full_like(trace, torch.inf)
        flat = gram.reshape(-1, size, size).cpu().numpy()
        top = torch.from_numpy(largest_eigenvalues(flat)).to(gram).reshape(trace.shape)
        # the Gram matrix errs by γ of its trace
        return (top + (linear.shape[-1] + 32) * 4e-16 * trace) * (self.far**2 * (1 + 1e-9))

    def sizes(self) -> torch.Tensor:
        """How far each token can move in l2."""
        if self.norm == 2 or self.norm == 1:
            found = self.scale.amax(dim=-1)
        else:
            found = self.scale.norm(dim=-1)
        return found * self._enlarge
