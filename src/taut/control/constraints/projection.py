"""Projection: weights that are orthogonal, or whose singular values have a limit, after a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from taut._base.bound import Bound
from taut._base.checks import real_number
from taut.control.constraint import Constraint
from taut.control.constraints.capped_matrix import check_choices, checked_limit, spectral_limit
from taut.control.constraints.nearest_matrix import nearest_orthogonal
from taut.control.constraints.reserve import Reserve
from taut.control.constraints.weight_turns import Entry, apart
from taut.control.verified import Verified, singular_values
from taut.models import ROLES, Block, Only, Weight, chosen_blocks, distinct_blocks

_HALF = (torch.float16, torch.bfloat16)
ORTHOGONAL = 1e-4  # how far singular values of an orthogonal matrix in single precision are from 1


Kind = tuple[int, int, torch.dtype, torch.device]  # of matrices that are capped together


class Projection(Constraint):
    """Bring weights back to what is wanted after every step of an optimiser.

    Only the weights change, so that a model is saved and loaded as ever.

    Parameters
    ----------
    model
        Any model whose attention and feed-forward networks can be found.
    limit
        Largest singular value; None makes matrices orthogonal instead: all singular values 1.
    method
        How matrices above the limit are changed: ``"exact"``, ``"soft_cap"``, ``"hard_cap"`` or
        ``"normalise"``, as in :func:`cap`.
    norm
        ``"spectral"``, or ``"rms"`` for a limit in units of √(outputs/inputs) of each matrix.
    reserve
        Share of the limit, such as 0.1, that a matrix is brought below it, once it has used up
        a fifth of that. Most steps are then proved by how far the matrix has moved since, without a
        product of matrices. It costs a copy of the weights.
    roles
        Which maps: ``"query"``, ``"key"``, ``"value"``, ``"output"``, ``"gate"``, ``"first"``,
        ``"second"``; all that are there if not given.
    per_head
        Take query, key and value maps (rows) and output maps (columns) head by head.
    only, blocks
        As in :class:`Orthogonality`.

    Notes
    -----
    Frozen weights are projected too. The state of the optimiser is left as it is. Weights that are
    loaded while it runs may break the limit until the next step: :meth:`verify` says so, and
    ``after_step()`` mends it. :meth:`values` has the numbers of matrices that the last step changed
    (``changed``), and of those that were too far away for products (``decomposed``).

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
        method: str = "exact",
        norm: str = "spectral",
        reserve: float = 0.0,
        roles: str | Sequence[str] | None = None,
        per_head: bool = False,
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        check_choices(method, norm)
        if limit is None and (method, norm, reserve) != ("exact", "spectral", 0.0):
            raise ValueError("method, norm and reserve need a limit; limit=None makes orthogonal")
        if not 0 <= real_number(reserve, name="reserve") <= 0.5:
            raise ValueError(f"reserve must be between 0 and 0.5, got {reserve!r}")
        roles = [roles] if isinstance(roles, str) else roles
        if roles is not None and not set(roles) <= set(ROLES):
            raise ValueError(f"roles must be some of {', '.join(ROLES)}, got {list(roles)}")
        super().__init__(model)
        self.limit = None if limit is None else checked_limit(limit)
        self.method, self.norm, self.reserve, self.per_head = method, norm, reserve, per_head
        self._kept: dict[tuple[int, Kind], Reserve] = {}
        self._changed = self._decomposed = 0
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
            # The sum of finite numbers may overflow, but looking at each of them costs more.
            matrix = weight.matrix().detach()
            if not bool(torch.isfinite(matrix.sum())) and not bool(torch.isfinite(matrix).all()):
                raise ValueError(f"{weight} holds NaN or infinite numbers and cannot be projected")
        self._changed = self._decomposed = 0
        if self.limit is None:
            for block, role, weight in self._weights:
                done = [nearest_orthogonal(part) for part in self._parts(block, role, weight)]
                weight.replace(torch.cat(done, dim=_side(role)))
            return
        for turn, chosen in enumerate(apart(self._weights)):
            self._cap(turn, self.limit, chosen)

    def _cap(self, turn: int, limit: float, chosen: Sequence[Entry]) -> None:
        """Cap weights that do not overlap, all parts of a shape at once."""
        parts = [list(self._parts(*entry)) for entry in chosen]
        kinds: dict[Kind, list[tuple[int, int]]] = {}
        for i, several in enumerate(parts):
            for j, part in enumerate(several):
                kinds.setdefault((*part.shape, part.dtype, part.device), []).append((i, j))
        touched = set()
        for kind, places in kinds.items():
            largest = spectral_limit(limit, self.norm, kind[0], kind[1])
            reserve = self._kept.setdefault(
                (turn, kind), Reserve(largest, self.method, self.reserve)
            )
            new, alone = reserve.capped([parts[i][j] for i, j in places])
            for row, matrix in new.items():
                i, j = places[row]
                parts[i][j] = matrix
                touched.add(i)
            self._changed += len(new)
            self._decomposed += 0 if self.method == "normalise" else alone
        for i in sorted(touched):
            _, role, weight = chosen[i]
            weight.replace(torch.cat(parts[i], dim=_side(role)))

    @torch.no_grad()
    def verify(self) -> list[Verified]:
        """Singular values of every matrix, or of those of its heads, by SVD in double precision."""
        self._check_held(self.parameters())
        found = []
        for block, role, weight in self._weights:
            parts = self._parts(block, role, weight)
            for h, part in enumerate(parts):
                largest, smallest, sigma = singular_values(part.double())
                head = h if len(parts) > 1 else None
                claim, holds = self._judged(largest, smallest, sigma, part)
                found.append(Verified(str(weight), claim, holds, largest, (sigma,), head))
        return found

    def values(self) -> dict[str, float]:
        """How many matrices the last step changed, and how many of them by a decomposition."""
        return {"changed": float(self._changed), "decomposed": float(self._decomposed)}

    def _judged(
        self, largest: float, smallest: float, sigma: Bound, part: torch.Tensor
    ) -> tuple[str, bool]:
        """What is wanted of singular values, and whether it holds."""
        if self.limit is not None:
            rows, columns = part.shape
            limit = spectral_limit(self.limit, self.norm, rows, columns)
            units = f" = {self.limit:g}·√({rows}/{columns})" if self.norm == "rms" else ""
            return f"largest singular value at most {limit:g}{units}", sigma.upper <= limit
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

    def _parts(self, block: Block, role: str, weight: Weight) -> tuple[torch.Tensor, ...]:
        """The matrix, or those of its heads."""
        matrix = weight.matrix().detach()
        if not self.per_head or block.kind != "attention" or role == "query-key-value":
            return (matrix,)
        assert block.heads is not None
        # Grouped heads have fewer keys and values; the width of a head is the output's.
        width = block.weights["output"].matrix().shape[1] // block.heads
        return tuple(matrix.split(width, dim=_side(role)))  # type: ignore[no-untyped-call]


def _side(role: str) -> int:
    """Heads are columns of output maps, and rows of the others."""
    return 1 if role == "output" else 0
