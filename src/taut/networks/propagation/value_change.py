"""The product of changed weights and changed values in attention (theorem affine-attention)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.value_factors import LIMIT, ValueFactors

Pick = Callable[[torch.Tensor, Rows], torch.Tensor]


class ValueChange:
    """Bounds |Σ δp·(a·δv)| over heads, queries and keys, for |δp| ≤ change.

    Parameters
    ----------
    factors
        Radii of the values.
    change
        Largest |δp|, (heads, queries, keys).
    length
        The largest l2 norm of δp, (heads, queries), or None.
    group
        How many heads share a value.
    limit
        Multiplications that contracting rows with all entries of the input may take.
    """

    def __init__(
        self,
        factors: ValueFactors,
        change: torch.Tensor,
        length: torch.Tensor | None,
        group: int,
        limit: float = LIMIT,
    ) -> None:
        self.factors, self.change, self.length, self.limit = factors, change, length, limit
        self.box, self.errors, self.linear = (
            each.transpose(0, 1).repeat_interleave(group, dim=0)
            for each in (factors.box, factors.errors, factors.linear)
        )
        self.plain = torch.einsum("hij,hjd->hid", change, self.box) * (1 + 1e-9)
        self.lengths = factors.plain_lengths.mT.repeat_interleave(group, dim=0)
        source = factors.source
        real = None if source is None else source[source >= 0]
        # values that depend on one token of the input each, all on different ones
        self.apart = real is not None and len(torch.unique(real)) == len(real)

    def bound(self, a: torch.Tensor, rows: Rows, pick: Pick) -> torch.Tensor:
        """One number for each row; a is (rows, heads, queries or 1, width)."""
        found = (a.abs() * pick(self.plain, rows)).flatten(1).sum(dim=1)
        queries = a.shape[2]
        if len(a) * queries * self.linear.numel() >= self.limit:
            return found
        moved = torch.einsum("shid,hjdk->shijk", a, self.linear)
        reach = self.factors.inputs.reach(moved)  # rows, heads, queries, keys
        doubt = a.norm(dim=-1)[..., None] * self.lengths[:, None] * ((a.shape[-1] + 8) * 4 * EPS)
        rest = torch.einsum("shid,hjd->shij", a.abs(), self.errors) + doubt
        change = pick(self.change, rows)
        other = (change * (reach + rest)).flatten(1).sum(dim=1)
        other = torch.minimum(other, self._together(reach, rest, change, rows, pick))
        return torch.minimum(found, other * (1 + 1e-9))

    def _together(
        self, reach: torch.Tensor, rest: torch.Tensor, change: torch.Tensor, rows: Rows, pick: Pick
    ) -> torch.Tensor:
        """All keys at once: if their values move apart, they share the size of the set.

        In l1 all of it goes to one key, in l2 Cauchy's inequality says how it is shared, in l∞
        there is nothing to share. With ‖δp‖₂ Cauchy's inequality is over the keys.
        """
        norm = self.factors.inputs.norm
        shared = self.apart and norm < float("inf")
        errors = (change * rest).flatten(1).sum(dim=1)
        found = torch.full_like(errors, torch.inf)
        if shared:
            keys = (change * reach).sum(dim=(1, 2))
            found = (keys.amax(dim=-1) if norm == 1 else keys.norm(dim=-1)) + errors
        if self.length is not None:
            together = reach.amax(dim=-1) if shared else reach.norm(dim=-1)
            by_length = (pick(self.length, rows) * together).flatten(1).sum(dim=1) + errors
            found = torch.minimum(found, by_length)
        return found
