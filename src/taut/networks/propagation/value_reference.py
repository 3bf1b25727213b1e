"""Radii of contracted values near a known row, at little cost (theorem l1-near-reference)."""

from __future__ import annotations

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.value_change import ValueChange
from taut.networks.propagation.value_factors import LIMIT

LEAST = 0.05  # smallest weight of an entry, in units of their mean
SMALLEST = 1e-200  # so that quotients are finite


class ValueReference:
    """Bounds |a·δv| of every key for rows a that are near a reference.

    In l∞ the radius is Σₖ|a·vₖ| over all entries k of the input, too many to add up for every row.
    For weights w > 0, Σ|a·vₖ| ≤ √Σw·√(Σ(a·vₖ)²/w) by Cauchy's inequality: a quadratic form, which
    is exact at a reference a₀ if w = |a₀·v|.

    Parameters
    ----------
    change
        Of the attention that the rows come from.
    reference
        a₀, (heads, queries, width).
    """

    def __init__(self, change: ValueChange, reference: torch.Tensor) -> None:
        self.change = change
        linear = change.linear  # heads, keys, width, entries
        self.form: torch.Tensor | None = None
        self.total = linear.new_zeros(())
        self.direct = change.factors.inputs.norm < float("inf") or linear.shape[-1] == 0
        if self.direct:
            return
        heads, queries, keys = change.change.shape
        width = linear.shape[-2]
        form = linear.new_zeros(heads, queries, keys, width, width)
        self.total = linear.new_zeros(heads, queries, keys)
        for head in range(heads):  # one key at a time: the table of all of them is large
            for key in range(keys):
                form[head, :, key], self.total[head, :, key] = _form(
                    reference[head], linear[head, key]
                )
        self.form = form

    def reach(self, a: torch.Tensor) -> torch.Tensor:
        """Radius of a·δv of each key, (rows, heads, queries, keys), a (rows, heads, queries, d)."""
        change = self.change
        size = a.abs()
        plain = torch.einsum("shid,hjd->shij", size, change.box)
        if self.form is not None:
            moved = torch.einsum("shid,hijde->shije", a, self.form)
            square = (moved * a[..., None, :]).sum(dim=-1).clamp(min=SMALLEST)
            near = (square * self.total).sqrt()
        elif len(a) * a.shape[2] * change.linear.numel() < LIMIT:
            near = change.factors.inputs.reach(torch.einsum("shid,hjdk->shijk", a, change.linear))
        else:
            return plain * (1 + 1e-9)
        doubt = a.norm(dim=-1)[..., None] * change.lengths[:, None] * ((a.shape[-1] + 8) * 4 * EPS)
        rest = torch.einsum("shid,hjd->shij", size, change.errors) + doubt
        return torch.minimum(plain, near + rest) * (1 + 1e-9)


def _form(a: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The quadratic form, and the sum of its weights, for each of these rows, (rows, width)."""
    weight = (a @ v).abs()
    least = LEAST * weight.mean(dim=-1, keepdim=True)
    weight = torch.maximum(weight, least).clamp(min=SMALLEST)
    form = (v / weight[:, None]) @ v.mT
    trace = form.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    more = (v.shape[-1] + 64) * 8 * EPS * trace + SMALLEST
    eye = torch.eye(len(v), dtype=v.dtype, device=v.device)
    return form + more[:, None, None] * eye, weight.sum(dim=-1) * (1 + 1e-9)
