"""Projections after a step: weights that are orthogonal, or whose singular values have a limit.

They change the weights and nothing else, so that a model is saved and loaded as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from taut._checks import real_number
from taut.control._after_step import AfterStep
from taut.control._find import ROLES, Block, Only, chosen_blocks, distinct

_HALF = (torch.float16, torch.bfloat16)
SMALLEST = 1e-30  # cap; single precision ends soon after
MARGIN = 4e-6  # singular values stay below the limit by this share, so that rounding cannot pass it


class Sigma(NamedTuple):
    """A matrix, its extreme singular values by a decomposition, and whether they are as wanted."""

    name: str
    largest: float
    smallest: float
    holds: bool


class Projection(AfterStep):
    """Weights brought back to what is wanted, after every step of an optimiser.

    Parameters
    ----------
    model
        Any model whose attention and feed-forward networks can be found.
    cap
        Largest singular value; None makes matrices orthogonal instead: all singular values 1.
    roles
        Which maps: ``"query"``, ``"key"``, ``"value"``, ``"output"``, ``"gate"``, ``"first"``,
        ``"second"``; all that are there if not given.
    per_head
        Take query, key and value maps (rows) and output maps (columns) head by head.
    only, blocks
        As in :func:`constrain`.

    Notes
    -----
    Weights that are frozen are projected too. What an optimiser remembers of its steps is left as
    it is.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> limit = Projection(model, cap=0.5).apply()
    >>> all(row.holds and row.largest <= 0.5 for row in limit.verify())
    True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        cap: float | None,
        roles: str | Sequence[str] | None = None,
        per_head: bool = False,
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        if cap is not None and not SMALLEST <= real_number(cap, name="cap") <= 1 / SMALLEST:
            raise ValueError(f"cap must be between {SMALLEST:g} and {1 / SMALLEST:g}, got {cap!r}")
        roles = [roles] if isinstance(roles, str) else roles
        if roles is not None and not set(roles) <= set(ROLES):
            raise ValueError(f"roles must be some of {', '.join(ROLES)}, got {list(roles)}")
        super().__init__(model)
        self.cap, self.per_head = cap, per_head
        chosen = chosen_blocks(model, only, blocks)
        self._weights = [
            (block, role, weight)
            for block in distinct(chosen)
            for role, weight in block.weights.items()
            if roles is None or role in roles
        ]
        if not self._weights:
            raise ValueError(f"no map of the roles {roles} was found")
        for _, _, weight in self._weights:
            if weight.parameter.dtype in _HALF:
                raise TypeError(
                    f"{weight} is kept in half precision, which rounds a projection away; keep "
                    "weights in float32 and compute under autocast"
                )

    @torch.no_grad()
    def apply(self) -> Projection:
        """Bring the weights back now."""
        for _, _, weight in self._weights:  # all, before anything is changed
            if not bool(torch.isfinite(weight.matrix()).all()):
                raise ValueError(f"{weight} holds NaN or infinite numbers and cannot be projected")
        for block, role, weight in self._weights:
            matrix = weight.matrix().detach()
            parts = list(self._parts(block, role, matrix))
            done = [self._project(part) for part in parts]
            if any(new is not old for new, old in zip(done, parts, strict=True)):
                weight.replace(torch.cat(done, dim=1 if role == "output" else 0))
        return self

    @torch.no_grad()
    def verify(self) -> list[Sigma]:
        """Singular values of every matrix, by a decomposition in double precision."""
        found = []
        for block, role, weight in self._weights:
            for h, part in enumerate(self._parts(block, role, weight.matrix().double())):
                values = torch.linalg.svdvals(part)
                name = f"{weight} head {h}" if self.per_head and block.heads else str(weight)
                large, small = float(values[0]), float(values[-1])
                wanted = large <= self.cap if self.cap else max(large - 1, 1 - small) < 1e-4
                found.append(Sigma(name, large, small, wanted))
        return found

    def parameters(self) -> list[nn.Parameter]:
        """What it may change."""
        return [weight.parameter for _, _, weight in self._weights]

    def __str__(self) -> str:
        wanted = "orthogonal" if self.cap is None else f"singular values at most {self.cap:g}"
        each = ", head by head" if self.per_head else ""
        return "\n".join(
            [f"{wanted}{each}, on", *(f"  {weight}" for _, _, weight in self._weights)]
        )

    def _parts(self, block: Block, role: str, matrix: torch.Tensor) -> Iterator[torch.Tensor]:
        """The matrix, or those of its heads."""
        if not self.per_head or block.kind != "attention" or role == "query-key-value":
            yield matrix
            return
        assert block.heads is not None
        side = 1 if role == "output" else 0
        # Grouped heads have fewer keys and values; the width of a head is the output's.
        width = block.weights["output"].matrix().shape[1] // block.heads
        yield from matrix.split(width, dim=side)  # type: ignore[no-untyped-call]

    def _project(self, matrix: torch.Tensor) -> torch.Tensor:
        if self.cap is None:
            return orthogonal(matrix)
        return capped(matrix, self.cap)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with all singular values 1: the polar factor."""
    left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    found: torch.Tensor = left @ right
    return found.to(matrix.dtype)


def capped(matrix: torch.Tensor, cap: float) -> torch.Tensor:
    """The nearest matrix whose singular values do not exceed the limit, short of a small margin."""
    if _at_most(matrix, cap):
        return matrix
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    wide = tall.double() / cap
    # Squares of singular values and their directions, less than half the work of the values.
    squares, directions = torch.linalg.eigh(wide.mT @ wide)
    if float(squares[-1]) > 1e8:  # then those near the limit drown in rounding
        left, values, right = torch.linalg.svd(wide, full_matrices=False)
        found = (left * values.clamp(max=1 - MARGIN)) @ right
    else:
        over = squares > (1 - MARGIN) ** 2
        if not bool(over.any()):
            return matrix
        shrink = 1 - (1 - MARGIN) * squares[over].rsqrt()
        some = directions[:, over]
        found = wide - ((wide @ some) * shrink) @ some.mT
    found = (found * cap).to(matrix.dtype)
    result: torch.Tensor = found if tall is matrix else found.mT
    return result


def _at_most(matrix: torch.Tensor, cap: float) -> bool:
    """Whether products of the Gram matrix prove it: σ^8 ≤ ‖(WᵀW)^4‖_F. Decompositions cost more."""
    small = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    small = small / cap  # first, so that small numbers do not vanish in the products
    gram = small.mT @ small
    power = (gram @ gram) @ (gram @ gram)
    return float(power.norm()) < 0.99  # the margin covers rounding many times
