"""Proofs that last for several steps: a bound from before, and how far a matrix has moved since.

σ_max(W) ≤ σ_max(V) + ‖W − V‖_F (theorem cap-drift). If V was brought to a little below the limit,
the next steps of a training are proved by a difference and its length, without any product of
matrices. Whatever has changed the weights, the difference is taken of the numbers as they are now.
"""

from __future__ import annotations

import numpy as np
import torch

from taut._base.rounding import plus, times
from taut.control.constraints.capped_stack import CappedStack, Indices, capped_stack
from taut.control.constraints.proved_norms import Numbers, frobenius, unit


class Reserve:
    """Matrices of a shape as they were when their norms were last proved, and those proofs.

    Without a reserve nothing is kept, and norms are proved at every step.
    """

    def __init__(self, limit: float, method: str, reserve: float) -> None:
        self.limit, self.method, self.reserve = limit, method, reserve
        self._seen: torch.Tensor | None = None
        self._bounds: Numbers = np.zeros(0)

    def capped(self, stack: torch.Tensor) -> CappedStack:
        """Cap finite matrices (b, m, n), all but those that cannot have left the limit."""
        seen = self._seen
        if not self.reserve:
            return capped_stack(stack, self.limit, self.method)
        if seen is None or seen.shape != stack.shape or seen.dtype != stack.dtype:
            done = capped_stack(stack, self.limit, self.method, self.reserve)
            self._seen, self._bounds = done.matrices.clone(), done.bounds
            return done
        due = np.flatnonzero(~(self._now(stack, seen) <= self.limit))
        new, bounds = stack, self._bounds
        changed: Indices = due[:0]
        alone: Indices = changed
        if len(due):
            rows = torch.from_numpy(due)
            done = capped_stack(stack[rows], self.limit, self.method, self.reserve)
            seen[rows] = done.matrices
            bounds[due] = done.bounds
            changed, alone = due[done.changed], due[done.alone]
            new = stack.clone() if len(changed) else stack
            new[torch.from_numpy(changed)] = done.matrices[torch.from_numpy(done.changed)]
        return CappedStack(new, bounds, changed, alone)

    def _now(self, stack: torch.Tensor, seen: torch.Tensor) -> Numbers:
        """Upper bounds on the norms: a difference errs by u times itself in every entry."""
        moved = frobenius(stack - seen.to(stack.device))
        return np.asarray(plus(self._bounds, times(moved, 1 + 2 * unit(stack.dtype))))
