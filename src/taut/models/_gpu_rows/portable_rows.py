"""The numbers of every row by whole tensors in float64, on any device.

This is what the Triton kernel is compared with. It holds all scores that it is asked for, in
float64: take few queries at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taut._softmax import local_lipschitz
from taut.models.masks import HIDDEN


@torch.no_grad()
def portable_rows(
    query: Tensor, key: Tensor, bias: Tensor | None, factor: float, last: Tensor
) -> dict[str, Tensor]:
    """The numbers of every row of softmax(factor·qkᵀ + bias), see ``gpu_rows.row_numbers``.

    ``last`` is the last key that a query sees, (batch or 1, queries).
    """
    z, broken = _scores(query, key, bias, factor, last)
    visible = z > -torch.inf
    top = z.amax(dim=-1)
    alive = (top > -torch.inf) & ~broken
    centred = torch.where(visible, z - torch.where(alive, top, 0.0)[..., None], 0.0)
    weight = torch.where(visible, centred.exp(), 0.0)
    # The tail is summed without its largest weight: 1 + T − 1 would leave no digit of a small T.
    others = weight.scatter(-1, z.argmax(dim=-1, keepdim=True), 0.0)
    tail = others.sum(dim=-1)
    whole = 1 + tail
    one, two = local_lipschitz(torch.where(alive[..., None], z, 0.0), p=(1, 2))
    values = {
        "top": top,
        "lowest": torch.where(visible, z, torch.inf).amin(dim=-1),
        "seen": visible.sum(dim=-1).to(z.dtype),
        "log_sum": tail.log1p(),
        "mean": (weight * centred).sum(dim=-1) / whole,
        "first": weight[..., 0] / whole,
        "leader": (z == top[..., None]).int().argmax(dim=-1).to(z.dtype),
        "one": torch.where(alive, one.value, 0.0),
        "two": torch.where(alive, two.value, 0.0),
    }
    values = {name: torch.where(broken, torch.nan, value) for name, value in values.items()}
    return {**values, "broken": broken}


def _scores(
    query: Tensor, key: Tensor, bias: Tensor | None, factor: float, last: Tensor
) -> tuple[Tensor, Tensor]:
    """Scores with -inf where a key is hidden, and the rows in which one is NaN or +inf."""
    batch, heads, queries, width = query.shape
    key_heads, keys = key.shape[1:3]
    grouped = query.double().reshape(batch, key_heads, heads // key_heads, queries, width)
    z = grouped @ key.double()[:, :, None].transpose(-1, -2) * factor
    z = z.reshape(batch, heads, queries, keys)
    seen = (torch.arange(keys, device=z.device) <= last[..., None])[:, None]
    if bias is not None:
        if bias.dtype == torch.bool:
            seen = seen & bias
        else:
            z = z + bias.double()
    broken = (seen & ~(z < torch.inf)).any(dim=-1)
    return torch.where(seen & (z > HIDDEN) & (z < torch.inf), z, -torch.inf), broken
