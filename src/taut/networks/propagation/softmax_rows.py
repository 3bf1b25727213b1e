"""Bounds on all centred scores of a row of attention together (theorem softmax-joint)."""

from __future__ import annotations

import torch

from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.softmax_remainder import SMALLEST, beyond_linear

MOST = 40.0  # scores that move more are not bounded together
FLOOR = 1e-200  # so that roots have finite derivatives
MEMORY = 2e7  # numbers in a table of all rows, keys and entries


class JointRows:
    """Σ wⱼcⱼ² for centred scores cⱼ = uⱼ·δ + rest: at most (√sup Σ w(u·δ)² + ‖√w rest‖)².

    Parameters
    ----------
    p
        Weights, (heads, queries, keys).
    linear
        uⱼ in units of the set, (heads, queries, keys, entries).
    rest
        How far cⱼ can be from uⱼ·δ.
    a
        Largest |cⱼ|.
    inputs
        Where δ can be.
    """

    def __init__(
        self,
        p: torch.Tensor,
        linear: torch.Tensor,
        rest: torch.Tensor,
        a: torch.Tensor,
        inputs: InputSet,
    ) -> None:
        self.p, self.rest, self.inputs = p.clamp(min=SMALLEST), rest, inputs
        self.linear = linear
        small = a.clamp(1e-4, MOST)
        # (e^a − 1 − a)/a² and (e^a − 1)/a grow with a, so that those of the smallest a are larger
        psi = beyond_linear(small) / small**2 * (1 + 1e-9)
        self.chi = torch.expm1(small) / small * (1 + 1e-9)
        self.fits = bool((a <= MOST).all())
        self.weights = self.p * psi
        self.gap = self._square(self.weights)[..., None] if self.fits else None
        if inputs.norm == 1:
            self.table = linear.square().transpose(-1, -2)  # (..., entries, keys)
        else:
            gram = linear @ linear.mT
            trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
            doubt = (linear.shape[-1] + 32) * 4e-16 * trace
            self.table = (gram.abs() + doubt[..., None, None]) * inputs.far**2

    def _square(self, w: torch.Tensor) -> torch.Tensor:
        """Largest Σ wⱼcⱼ²."""
        top = self.inputs.square(w.sqrt()[..., None] * self.linear)
        far = top.sqrt() + (w * self.rest.square()).sum(dim=-1).sqrt()
        found: torch.Tensor = far.square() * (1 + 1e-9)
        return found

    def change(self, gap: torch.Tensor) -> torch.Tensor | None:
        """Largest l2 norm of p′ − p: |e^(c − g) − 1| ≤ |e^c − 1| + g ≤ χ|c| + g."""
        if not self.fits:
            return None
        far = self._square((self.p * self.chi).square()).sqrt()
        found: torch.Tensor = (far + self.p.norm(dim=-1) * gap[..., 0]) * (1 + 1e-9)
        return found

    @property
    def data(self) -> tuple[torch.Tensor, ...]:
        """What :meth:`side` reads of each query."""
        return self.weights, self.table, self.rest

    def affordable(self, b: torch.Tensor) -> bool:
        """Whether the table of all these rows fits into memory."""
        return self.fits and b[..., 0].numel() * self.table.shape[-2] < MEMORY

    def side(self, b: torch.Tensor, low: torch.Tensor, data: list[torch.Tensor]) -> torch.Tensor:
        """Largest Σ bⱼ·remainderⱼ: the squares where b > 0, the lower limits where b < 0.

        The largest eigenvalue is at most the largest row sum of absolute values.
        """
        weights, table, rest = data
        w = b.clamp(min=0.0) * weights
        if self.inputs.norm == 1:
            top = _applied(table, w).amax(dim=-1)
        else:
            root = w.clamp(min=FLOOR).sqrt()
            top = (root * _applied(table, root)).amax(dim=-1)
        more = (w * rest.square()).sum(dim=-1).clamp(min=FLOOR)
        far = (top * (1 + 1e-9)).clamp(min=FLOOR).sqrt() + more.sqrt()
        down = (-b).clamp(min=0.0) * low
        return far.square() * (1 + 1e-9) + down.sum(dim=-1)


def _applied(table: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The table of every query times its weights; one table for all rows is multiplied at once."""
    if len(table) == 1:
        return torch.einsum("hikj,shij->shik", table[0], w)
    return (table @ w[..., None])[..., 0]
