"""In l2: bounds on all centred scores of a row of attention together (theorem softmax-joint)."""

from __future__ import annotations

import torch

from taut._base.matrix_norm import largest_eigenvalues
from taut.networks.propagation.softmax_remainder import SMALLEST, beyond_linear

MOST = 40.0  # scores that move more are not bounded together


class JointRows:
    """Σ wⱼcⱼ² for centred scores cⱼ = uⱼ·δ + rest, |δ| ≤ 1: at most (√λ(√w uuᵀ √w) + ‖√w rest‖)².

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
    """

    def __init__(
        self, p: torch.Tensor, linear: torch.Tensor, rest: torch.Tensor, a: torch.Tensor
    ) -> None:
        self.p, self.rest = p.clamp(min=SMALLEST), rest
        self.gram = linear @ linear.mT
        trace = self.gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        self.doubt = (linear.shape[-1] + 32) * 4e-16 * trace
        small = a.clamp(1e-4, MOST)
        # (e^a − 1 − a)/a² and (e^a − 1)/a grow with a, so that those of the smallest a are larger
        self.psi = beyond_linear(small) / small**2 * (1 + 1e-9)
        self.chi = torch.expm1(small) / small * (1 + 1e-9)
        self.fits = bool((a <= MOST).all())
        self.gap = self._square(self.p * self.psi)[..., None] if self.fits else None

    def _square(self, w: torch.Tensor) -> torch.Tensor:
        """Largest Σ wⱼcⱼ²."""
        root = w.sqrt()
        joint = root[..., :, None] * self.gram * root[..., None, :]
        size = joint.shape[-1]
        flat = joint.reshape(-1, size, size).cpu().numpy()
        top = torch.from_numpy(largest_eigenvalues(flat)).to(w).reshape(w.shape[:-1])
        top = top * (1 + 1e-9) + self.doubt * w.amax(dim=-1)
        far = top.sqrt() + (w * self.rest.square()).sum(dim=-1).sqrt()
        found: torch.Tensor = far.square() * (1 + 1e-9)
        return found

    def change(self, gap: torch.Tensor) -> torch.Tensor | None:
        """Largest l2 norm of p′ − p: |e^(c − g) − 1| ≤ |e^c − 1| + g ≤ χ|c| + g."""
        if not self.fits:
            return None
        far = self._square((self.p * self.chi).square()).sqrt()
        return (far + self.p.norm(dim=-1) * gap[..., 0]) * (1 + 1e-9)

    @property
    def data(self) -> tuple[torch.Tensor, ...]:
        """What :meth:`side` reads of each query."""
        return self.p * self.psi, self.gram.abs(), self.rest, self.doubt

    def side(self, b: torch.Tensor, low: torch.Tensor, data: list[torch.Tensor]) -> torch.Tensor:
        """Largest Σ bⱼ·remainderⱼ: the squares where b > 0, the lower limits where b < 0.

        The largest eigenvalue is at most the largest row sum of absolute values.
        """
        if not self.fits:
            return b.new_full(b.shape[:-1], torch.inf)
        weights, gram, rest, doubt = data
        w = b.clamp(min=0.0) * weights
        root = w.sqrt()
        rows = root * (gram @ root[..., None])[..., 0]
        top = rows.amax(dim=-1) * (1 + 1e-9) + doubt * w.amax(dim=-1)
        far = top.sqrt() + (w * rest.square()).sum(dim=-1).sqrt()
        down = (-b).clamp(min=0.0) * low
        return far.square() * (1 + 1e-9) + down.sum(dim=-1)
