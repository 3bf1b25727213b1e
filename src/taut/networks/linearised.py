"""The derivative of a network at given inputs, as a map that can be applied both ways."""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensors = list[torch.Tensor]


class Linearised:
    """D = f′(x) for a batch of independent samples: ``push`` applies it, ``pull`` its transpose.

    Parameters
    ----------
    function
        From tensors (batch, ...) to a tensor (batch, ..., width).
    points
        Where; those that come after ``moving`` are fixed.
    moving
        How many of them the derivative is taken in.

    Notes
    -----
    ``push`` is the derivative of ``pull``, which is linear: forward-mode rules, which not all
    operations have, are not needed.
    """

    def __init__(self, function: Callable[..., torch.Tensor], points: Tensors, moving: int) -> None:
        self.points = [p.detach().clone().requires_grad_(i < moving) for i, p in enumerate(points)]
        self.moving = self.points[:moving]
        self.batch = len(points[0])
        found = function(*self.points)
        self.output = found.reshape(self.batch, -1, found.shape[-1])
        self._dual = torch.zeros_like(self.output, requires_grad=True)
        self._pulled = torch.autograd.grad(self.output, self.moving, self._dual, create_graph=True)

    def push(self, v: Tensors, *, many: bool = False) -> torch.Tensor:
        """Dv, for ``many`` directions at once in front of the batch if asked."""
        (found,) = torch.autograd.grad(
            self._pulled, self._dual, v, retain_graph=True, is_grads_batched=many
        )
        return found

    def pull(self, u: torch.Tensor, *, many: bool = False) -> Tensors:
        """Dᵀu."""
        return list(
            torch.autograd.grad(
                self.output, self.moving, u, retain_graph=True, is_grads_batched=many
            )
        )

    def random(self, source: torch.Generator, many: int | None = None) -> Tensors:
        """Gaussian directions."""
        front = () if many is None else (many,)
        return [
            torch.randn(*front, *p.shape, generator=source, dtype=torch.float64).to(p)
            for p in self.moving
        ]
