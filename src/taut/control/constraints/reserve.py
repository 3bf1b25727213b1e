"""Proofs that last for several steps: a bound from before, and how far a matrix has moved since.

σ_max(W) ≤ σ_max(V) + ‖W − V‖_F (theorem cap-drift), and √(‖W − V‖₁‖W − V‖_∞) will do as well, as
it is no less than σ_max(W − V) either. If V was brought to a little below the limit, the next steps
of a training are proved by a difference and its size, without any product of matrices. Whatever has
changed the weights, the difference is taken of the numbers as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from taut._base.rounding import plus, root, times
from taut.control.constraints.capped_stack import capped_stack
from taut.control.constraints.proved_norms import Numbers, absolute_squares, frobenius, unit

GROWN = 0.1  # share of a movement that a norm is guessed to have grown by


class Reserve:
    """Matrices of a shape as they were when their norms were last proved, and those proofs.

    Without a reserve nothing is kept, and norms are proved at every step.
    """

    def __init__(self, limit: float, method: str, reserve: float) -> None:
        self.limit, self.method, self.reserve = limit, method, reserve
        self._seen: list[torch.Tensor] = []
        self._bounds: Numbers = np.zeros(0)

    def capped(self, matrices: Sequence[torch.Tensor]) -> tuple[dict[int, torch.Tensor], int]:
        """Cap finite matrices of one shape, all but those that cannot have left the limit.

        Returns the new ones by their indices, and how many of them were capped one by one.
        """
        known = len(self._seen) == len(matrices)
        bounds = self._bounds if known else np.full(len(matrices), np.inf)
        moved = self._moved(matrices, bounds) if known else np.zeros(len(matrices))
        due = np.flatnonzero(~(plus(bounds, moved) <= self.limit)).tolist()
        if not due:
            return {}, 0
        guesses = bounds[due] + GROWN * moved[due] if known else None
        stack = torch.stack([matrices[i] for i in due])
        done = capped_stack(stack, self.limit, self.method, self.reserve, guesses)
        if self.reserve:
            bounds[due] = done.bounds
            seen = self._seen if known else list(matrices)
            for i, matrix in zip(due, done.matrices, strict=True):
                seen[i] = matrix.clone()  # not a view of all of them
            self._seen, self._bounds = seen, bounds
        return {due[i]: done.matrices[i] for i in done.changed.tolist()}, len(done.alone)

    def _moved(self, matrices: Sequence[torch.Tensor], bounds: Numbers) -> Numbers:
        """How far the matrices have moved, from above; a difference errs by u times itself.

        One by one, which stays in the cache. The Frobenius norm is found first: it costs a third of
        the other one, and most steps need no more.
        """
        more = 1 + 2 * unit(matrices[0].dtype)
        found = []
        for new, old, bound in zip(matrices, self._seen, bounds.tolist(), strict=True):
            difference = (new - old)[None]
            size = float(times(frobenius(difference)[0], more))
            if not plus(bound, size) <= self.limit:
                size = float(times(root(absolute_squares(difference)[0]), more))
            found.append(size)
        return np.asarray(found)
