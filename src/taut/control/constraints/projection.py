"""Projection: weights that are orthogonal, or whose singular values have a limit, after a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from taut._base.bound import Bound
from taut._base.checks import real_number
from taut.control.constraint import Constraint
from taut.control.constraints.capped_matrix import cap
from taut.control.constraints.nearest_matrix import nearest_orthogonal
from taut.control.verified import Verified, singular_values
from taut.models import ROLES, Block, Only, chosen_blocks, distinct_blocks

_HALF = (torch.float16, torch.bfloat16)
SMALLEST = 1e-30  # limit; the range of single precision ends soon after
ORTHOGONAL = 1e-4  # how far singular values of an orthogonal matrix in single precision are from 1


class Projection(Constraint):
    """Bring weights back to what is wanted after every step of an optimiser.

    Only the weights change, so that a model is saved and loaded as ever.

    Parameters
    ----------
    model
        Any model whose attention and feed-forward networks can be found.
    limit
        Largest singular value; None makes matrices orthogonal instead: all singular values 1.
    roles
        Which maps: ``"query"``, ``"key"``, ``"value"``, ``"output"``, ``"gate"``, ``"first"``,
        ``"second"``; all that are there if not given.
    per_head
        Take query, key and value maps (rows) and output maps (columns) head by head.
    only, blocks
        As in :class:`Orthogonality`.

    Notes
    -----
    Frozen weights are projected too. The state of the optimiser is left as it is.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> projection = Projection(model, limit=0.5).start(optimizer)
    >>> all(row.holds for row in projection.verify())
    True
    >>> projection.verify()[0].certificates[0] <= 0.5
    True
    """

    name = "projection"

    def __init__(
        self,
        model: nn.Module,
        *,
        limit: float | None,
        roles: str | Sequence[str] | None = None,
        per_head: bool = False,
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        if limit is not None and not SMALLEST <= real_number(limit, name="limit") <= 1 / SMALLEST:
            raise ValueError(
                f"limit must be between {SMALLEST:g} and {1 / SMALLEST:g}, got {limit!r}"
            )
        roles = [roles] if isinstance(roles, str) else roles
        if roles is not None and not set(roles) <= set(ROLES):
            raise ValueError(f"roles must be some of {', '.join(ROLES)}, got {list(roles)}")
        super().__init__(model)
        self.limit, self.per_head = limit, per_head
        chosen = chosen_blocks(model, only, blocks)
        self._weights = [
            (block, role, weight)
            for block in distinct_blocks(chosen)
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

    def _begin(self) -> None:
        self._after_step()

    @torch.no_grad()
    def _after_step(self) -> None:
        for _, _, weight in self._weights:  # all, before anything is changed
            if not bool(torch.isfinite(weight.matrix()).all()):
                raise ValueError(f"{weight} holds NaN or infinite numbers and cannot be projected")
        for block, role, weight in self._weights:
            matrix = weight.matrix().detach()
            parts = list(self._parts(block, role, matrix))
            done = [self._project(part) for part in parts]
            if any(new is not old for new, old in zip(done, parts, strict=True)):
                weight.replace(torch.cat(done, dim=1 if role == "output" else 0))

    @torch.no_grad()
    def verify(self) -> list[Verified]:
        """Singular values of every matrix, or of those of its heads, by SVD in double precision."""
        found = []
        for block, role, weight in self._weights:
            parts = list(self._parts(block, role, weight.matrix().double()))
            for h, part in enumerate(parts):
                largest, smallest, sigma = singular_values(part)
                head = h if len(parts) > 1 else None
                claim, holds = self._judged(largest, smallest, sigma)
                found.append(Verified(str(weight), claim, holds, largest, (sigma,), head))
        return found

    def _judged(self, largest: float, smallest: float, sigma: Bound) -> tuple[str, bool]:
        """What is wanted of singular values, and whether it holds."""
        if self.limit is not None:
            return f"largest singular value at most {self.limit:g}", sigma.upper <= self.limit
        off = max(largest - 1, 1 - smallest)
        return f"all singular values 1, to {ORTHOGONAL:g}", off < ORTHOGONAL

    def parameters(self) -> list[nn.Parameter]:
        """The weights that are projected."""
        return [weight.parameter for _, _, weight in self._weights]

    def __str__(self) -> str:
        wanted = "orthogonal" if self.limit is None else f"singular values at most {self.limit:g}"
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
        if self.limit is None:
            return nearest_orthogonal(matrix)
        return cap(matrix, self.limit)
